"""Likelihoods, priors, posteriors and intervals of change rates."""
