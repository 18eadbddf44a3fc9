"""The other nodes: their registration, whether they are up, what they say of themselves."""
