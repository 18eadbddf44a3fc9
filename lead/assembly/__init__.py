"""Building of a lead from its parts, and for the node that it plans for."""
