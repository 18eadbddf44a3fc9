"""Long-term behaviour of policies: episode after episode over the seats of a simulated fleet."""
