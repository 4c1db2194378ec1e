"""Certificates: from primal rates and dual variables to a proved Solution."""
