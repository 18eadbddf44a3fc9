"""Limits that the owner gives others: the file, the use of quotas, shares of leads."""
