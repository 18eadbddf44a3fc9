"""Writes the reference from the code: commands, API, settings, metrics, views, files, tests."""
