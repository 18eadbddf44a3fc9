"""The decisions of the planning pipeline: which slots to plan and where to place them. Pure."""
