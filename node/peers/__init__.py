"""The other nodes: registration, health, attributes, and pull mode."""
