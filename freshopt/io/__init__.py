"""Files in and out: crawl logs, tables, whole folders."""
