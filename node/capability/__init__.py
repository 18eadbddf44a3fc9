"""What this host can measure, and what its programs are allowed to do."""
