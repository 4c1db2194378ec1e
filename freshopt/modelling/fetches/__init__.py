"""Fetches that fail, and fetches that cost what they bring."""
