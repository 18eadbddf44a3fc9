"""What operators ask about a node: how it is, and what is wrong between it and another one."""
