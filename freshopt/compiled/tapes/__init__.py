"""Passes compiled from the tapes of declared expressions."""
