"""Page of lifetimes, of copies that are refreshed on request."""
