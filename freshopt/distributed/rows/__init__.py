"""Constraints of partitioned sources, priced by passes over them."""
