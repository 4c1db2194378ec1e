"""`freshopt serve`: a live planner over HTTP, for crawlers in any language."""
