"""The outcomes of planning attempts, as the trace stores them and people see them."""

from __future__ import annotations

from enum import StrEnum


class PlanningOutcome(StrEnum):
    """The outcome of one entry in the planning trace of a task."""

    # Booking the runs of a task.
    BOOKED = "booked"
    PARTLY_BOOKED = "partly booked"
    NO_TIME = "no time"
    CONFLICT = "conflict"
    """A participant found another run in the way when it was to hold the time."""
    NO_ANSWER = "no answer"
    """A participant did not answer the request to hold."""
    UNREACHABLE = "unreachable"
    """A participant did not answer the request for proposals."""
    CLOCK = "clock"
    """A participant's clock is too far from the lead's."""
    SUSPENDED = "suspended"
    """The campaign of the task is suspended."""
    LEASE_LOST = "lease lost"
    """Another worker has taken the task over."""
    TOO_LATE = "too late"
    """The task ended, or its lease was lost, before the decision."""
    TAKEN_BACK = "taken back"
    """All runs were cancelled or displaced while they were being booked."""
    GIVEN_UP = "given up"
    """The window, or the term, is over."""
    BROKEN_OFF = "broken off"
    """An unexpected error ended the attempt."""

    # Finding nodes for the seats of a pool task.
    SEATED = "seated"
    PARTLY_SEATED = "partly seated"
    NOT_SEATED = "not seated"
    SEAT_LOST = "seat lost"
    LACKS_NODES = "lacks nodes"
    GOES_ON = "goes on"
    """The pool has enough nodes again."""

    SKIPPED = "skipped"
    """A run that was to follow another one is cancelled, because of how that one ended."""

    # Changes by the owner of the task.
    PAUSED = "paused"
    RESUMED = "resumed"
    RELEASED = "released"
    EDITED = "edited"


UNANSWERED = frozenset({PlanningOutcome.UNREACHABLE, PlanningOutcome.NO_ANSWER})
"""Outcomes after which a participant is asked again, because it gave no answer."""
