"""The domain: pure values and rules for every other module; no I/O, no clock, no randomness."""
