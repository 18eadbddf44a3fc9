"""The language of pScheduler: its documents, its tests, and its conversations over HTTP."""
