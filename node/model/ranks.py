"""Ranks of runs on a host: its own tasks come first. Pure.

A run gives way only to one of higher rank, or of the same rank and higher priority. Rank is ruled
on by each host for itself: a task of the owner's there is another node's task elsewhere.
"""

from __future__ import annotations

from typing import Final

OWN: Final = 0
"""The rank of tasks that the host leads itself, and of those that its limits let rank so."""

PEER: Final = -1
"""The rank of the tasks of other nodes."""
