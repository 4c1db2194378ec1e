"""A plan, its findings and uncertainty, its files, its backtest."""
