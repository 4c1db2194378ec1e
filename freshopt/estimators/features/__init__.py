"""Change rates of sources without history, from features."""
