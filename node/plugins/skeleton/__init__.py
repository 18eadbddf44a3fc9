"""The templates (for string.Template) from which ``parley plugin new`` makes a package."""
