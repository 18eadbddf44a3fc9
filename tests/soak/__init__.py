"""Many simulated worlds, one for each seed, on all cores."""
