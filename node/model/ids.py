"""Identifiers: distinct types for ids that must not be confused, and derivation of ids.

A run's id is derived from its task, its slot and its attempt, so that a repeated request names the
same run and the same slot is never two runs (promise 3).

An exchange's id is derived from its task and the lease epoch. A lead whose database was restored
from a backup raises all epochs to the clock before it goes on, so that what it asks for now has
other names than what it asked for after the backup. The generation, a random value that is made
anew at the same time, tells participants that this has happened.
"""

from __future__ import annotations

from typing import NewType
from uuid import UUID, uuid5

TaskId = NewType("TaskId", UUID)
RunId = NewType("RunId", UUID)
GapId = NewType("GapId", UUID)
ExchangeId = NewType("ExchangeId", UUID)
Generation = NewType("Generation", UUID)
Identity = NewType("Identity", str)
"""A node's public key in its written form, ``ed25519:…``."""


def run_id(task: TaskId, slot: int, attempt: int) -> RunId:
    """Return the id of the ``attempt``-th run (from 1) of the slot with this nominal start."""
    return RunId(uuid5(task, f"run {slot} {attempt}"))


def gap_id(task: TaskId, first_slot: int) -> GapId:
    """Return the id of the gap of a task that begins with this slot."""
    return GapId(uuid5(task, f"gap {first_slot}"))


def exchange_id(task: TaskId, lease_epoch: int) -> ExchangeId:
    """Return the id of the exchange that a claim of this epoch opens for the task."""
    return ExchangeId(uuid5(task, f"exchange {lease_epoch} 1"))


def repeated_exchange_id(exchange: UUID) -> ExchangeId:
    """Return the id under which the runs of an exchange are held again after a late commit."""
    return ExchangeId(uuid5(exchange, "again"))


def is_exchange_of(exchange: UUID, task: UUID, lease_epoch: int) -> bool:
    """Return whether a claim of this epoch opens this exchange for the task, at once or again.

    A participant demands it of every hold and release, so that no node can use up the ids of
    another one's exchanges.
    """
    first = exchange_id(TaskId(task), lease_epoch)
    return exchange in (first, repeated_exchange_id(first))
