"""Records, reasons, and the port to participants: the words of every part of the lead."""
