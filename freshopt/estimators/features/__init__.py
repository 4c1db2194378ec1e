"""Change rates of sources without history, from what is known of the sources themselves."""
