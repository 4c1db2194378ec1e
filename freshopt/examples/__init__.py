"""Real histories that come with freshopt."""
