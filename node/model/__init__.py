"""What everything else speaks of: pure values and rules, with no I/O, no clock and no randomness."""
