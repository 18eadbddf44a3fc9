"""Operation of a node: how it is, what its metrics are, what is wrong between two."""
