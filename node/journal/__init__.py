"""Record of what happened, and of who is told: events, audit, messages to others."""
