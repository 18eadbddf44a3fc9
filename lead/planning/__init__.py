"""Deciding which slots to ask for, and where in the offers to put them. Pure."""
