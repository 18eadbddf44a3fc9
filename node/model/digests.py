"""Digests of tasks and runs, so that two nodes compare a few bytes instead of documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.secrets import as_introduced
from node.model.task_terms import TaskTerms


def fingerprint(starts: Mapping[UUID, int]) -> str:
    """Return the SHA-256 over runs and their starts (µs), equal exactly for equal mappings."""
    joined = b"".join(run.bytes + starts[run].to_bytes(8) for run in sorted(starts))
    return hashlib.sha256(joined).hexdigest()


def terms_fingerprint(terms: TaskTerms) -> str:
    """Return the SHA-256 over what a lead tells its participants of a task.

    Left out are the revision, which is compared itself, and what only the lead keeps up to date:
    the participants' answers, and the tool and the duration that it chose by them.
    """
    fields = {
        "test": terms.test,
        "spec": as_introduced(terms.spec),
        "tools": terms.tools,
        "class": terms.scheduling_class,
        "priority": terms.priority,
        "participants": [(each.node, each.context) for each in terms.participants],
        "addresses": terms.addresses,
        "schedule": terms.schedule.model_dump(mode="json"),
        "campaign": terms.campaign,
        "reference": terms.reference,
    }
    written = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(written.encode()).hexdigest()


def measured_fingerprint(test: str, spec: Mapping[str, Any]) -> str:
    """Return the SHA-256 over what a run measures, which is the same on each of its hosts."""
    written = json.dumps([test, as_introduced(spec)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(written.encode()).hexdigest()


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
