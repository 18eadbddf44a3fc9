"""Takes tasks in, changes them and ends them; books nothing and runs nothing."""
