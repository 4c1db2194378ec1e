"""Solvers, one algorithm per file. Installs as `freshopt.solvers`."""
