"""Ground of every part: time, settings, names, batches, traces, periodic jobs."""
