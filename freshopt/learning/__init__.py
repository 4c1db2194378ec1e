"""Change rates from crawl logs."""
