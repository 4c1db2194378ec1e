"""An adversary of freshopt: see `adversary.py`."""
