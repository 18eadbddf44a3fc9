"""The lead: plans the runs of the tasks created on this node. See README.md here."""
