"""The tests and tools that this host can run, and the privileges of its programs."""
