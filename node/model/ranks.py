"""Ranks of runs on a host: its own tasks come first. Pure.

A run gives way only to one of higher rank, or of the same rank and higher priority. Rank is ruled
on by each host for itself: a task of the owner's there is another node's task elsewhere.
"""

from __future__ import annotations

from typing import Final

OWN: Final = 0
"""The rank of tasks that the host leads itself, and of those that its limits let rank so."""

FIRM: Final = 1
"""The rank of committed runs of leads from outside, which give way to nobody: nothing could tell
such a lead that its run was displaced, so that it would measure without this host."""

PEER: Final = -1
"""The rank of the tasks of other nodes."""
