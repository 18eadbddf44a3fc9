"""Several nodes on one host, for trials and tests: on loopback, or joined by an emulated WAN."""
