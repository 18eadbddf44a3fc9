"""Parts that the two ends of a run tell each other, a module for each tool of pScheduler. Pure."""
