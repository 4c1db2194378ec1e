"""Cost curves from numbers: tables, functions, pairs, and what a log tells."""
