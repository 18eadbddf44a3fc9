"""Digests of sets of runs: two sides compare a few bytes instead of lists."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from uuid import UUID


def fingerprint(runs: Iterable[UUID]) -> str:
    """SHA-256 over the sorted ids: equal exactly if both sides have the same runs."""
    return hashlib.sha256(b"".join(run.bytes for run in sorted(runs))).hexdigest()
