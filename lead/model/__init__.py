"""What every part of the lead speaks of: its records, its reasons, the port to participants."""
