"""Several nodes on one host, for trying and testing: on loopback, or joined by an emulated WAN."""
