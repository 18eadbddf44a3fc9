"""Pools played ahead in virtual time: real episodes, and the real search for seats."""
