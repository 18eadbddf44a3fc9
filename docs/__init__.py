"""The documentation, and what makes its reference."""
