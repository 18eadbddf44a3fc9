"""One world in virtual time: the same lead and booking code over simulated nodes and network."""
