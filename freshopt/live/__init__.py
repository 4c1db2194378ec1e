"""A planner that keeps its state: hand out, observe, plan again."""
