"""Digests of sets of runs, so that two nodes compare a few bytes instead of lists."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from uuid import UUID


def fingerprint(runs: Iterable[UUID]) -> str:
    """Return the SHA-256 over the sorted ids, which is equal exactly for equal sets."""
    return hashlib.sha256(b"".join(run.bytes for run in sorted(runs))).hexdigest()
