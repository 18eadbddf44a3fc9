"""The node: one host's service, its run table, its tools and its keys. See README.md here."""
