"""Rules of older systems that Parley adapts: they answer worked cases, and nothing else."""
