"""General separable programs: numerics, rows, Lagrangian; no source, no objective."""
