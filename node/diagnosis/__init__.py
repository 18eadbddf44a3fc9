"""Diagnosis: how a node is, and what is wrong between it and another one."""
