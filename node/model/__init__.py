"""What everything else speaks of: pure values and rules; no I/O, no clock, no randomness."""
