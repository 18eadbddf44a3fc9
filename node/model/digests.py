"""Digests of runs and their times, so that two nodes compare a few bytes instead of lists."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID


def fingerprint(starts: Mapping[UUID, int]) -> str:
    """Return the SHA-256 over runs and their starts (µs), equal exactly for equal mappings."""
    joined = b"".join(run.bytes + starts[run].to_bytes(8) for run in sorted(starts))
    return hashlib.sha256(joined).hexdigest()


@dataclass(frozen=True)
class RunDifferences:
    """Differences between the runs of two sides, in order of ids."""

    missing: tuple[UUID, ...]
    moved: tuple[UUID, ...]
    surplus: tuple[UUID, ...]


def differences(ours: Mapping[UUID, int], theirs: Mapping[UUID, int]) -> RunDifferences:
    """Return the runs that they lack, that start at another time there, and that only they have.

    Both sides are given by the starts of their runs (µs).
    """
    return RunDifferences(
        missing=tuple(sorted(ours.keys() - theirs.keys())),
        moved=tuple(sorted(run for run in ours.keys() & theirs.keys() if ours[run] != theirs[run])),
        surplus=tuple(sorted(theirs.keys() - ours.keys())),
    )


def starts_of(runs: Sequence[UUID] | None, starts: Sequence[int] | None) -> dict[UUID, int]:
    """Return the starts by run, from two columns that are null if there are none."""
    return dict(zip(runs or (), starts or (), strict=True))
