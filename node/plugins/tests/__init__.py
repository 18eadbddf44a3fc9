"""The kinds of measurements: one module per test, each with its ``TEST``, all independent. Pure."""
