"""The loop over pools: gives the seats of pool tasks to nodes, by the policies of each pool.

For each pool with something due there is an episode: the policies say whose turn it is and which
nodes to ask, ``seating.py`` asks them, and what came of all that is written in one transaction:
ordinary tasks for the seats that were given, the reasons of those that were not, and what the
policies remember. From there on each seat is a task like any other, planned by the workers.

A notification wakes the loop, and the clock does when the next term is due; a look every few
seconds is the safety net. An episode that finds its pool changed meanwhile is given up and begun
anew, so several processes of one lead do no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from lead.keeping import Keeping, Stale
from lead.membership import Membership
from lead.model import GoingOn, OpenTerm, PoolTask, Remembered
from lead.planning.agenda import Limits
from lead.planning.overview import (
    Case,
    campaign_of,
    candidate_of,
    charges_of,
    node_of,
    recalled,
)
from lead.planning.remembering import state_of
from lead.seating import Found, Searching
from lead.store import seats
from node.clock import Clock
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import ParleyError
from node.model.scheduling import recurrence_of
from node.model.seating import Term, due_at, next_term, open_slots, slots_in, term_length
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import Schedule
from node.store import campaigns
from node.store.database import Connection, Database, Notice
from node.store.pools import StoredPool

POLL_S = 5.0
