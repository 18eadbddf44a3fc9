"""psConfig templates: what they say, and the mesh file of ours that says the same. Pure."""
