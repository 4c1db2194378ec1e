"""Search for dual prices of separable problems."""
