"""Access to a node: the tokens of its users, those of issuers, and its certificates."""
