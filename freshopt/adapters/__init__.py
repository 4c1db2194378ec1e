"""Live planners inside other tools, one tool per file."""
