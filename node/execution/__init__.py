"""From an agreed instant to a finished program: launching, watching, ending, collecting."""
