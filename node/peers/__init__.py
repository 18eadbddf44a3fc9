"""The other nodes: registration, health, attributes, moves, and pull mode."""
