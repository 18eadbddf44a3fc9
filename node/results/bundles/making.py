"""Makes the bundle of a run at its lead, and signs it with the key of the node.

All rows of the run are read in one transaction that locks it, so that no late part comes between
what is read. The bundle is then put together and signed in a thread, since canonical JSON of
many intervals takes seconds; one at a time, since a long run takes a hundred megabytes. The
participants' own statements are copied as they were stored with their parts, since the lead cannot
make them; its own signature covers every other member of the document.

Only a run that is over, and that this node leads, has a bundle. What a user may not see of
decisions is removed before signing. What is lacking (a part that never came, output that was
shortened) is told in the bundle itself, so that nobody takes its absence for tampering. The checks,
which need no node, are in :mod:`.verification`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from node.execution.catalog import Capabilities
from node.model.errors import Conflict, HostError, NotFound, TooLarge
from node.model.runstate import OVER, RunState
from node.model.secrets import without_sealed
from node.model.times import duration_text
from node.model.wire.bundles import (
    MEDIA_TYPE,
    VERSION,
    BundleInterval,
    BundleMaker,
    BundleOutcome,
    BundlePart,
    BundleParticipant,
    BundleRun,
    BundleShare,
    BundleTask,
    RunBundle,
)
from node.model.wire.runs import Decision, MetricView
from node.model.wire.tasks import Participant
from node.plugins import registry
from node.results.bundles.verification import MERGED
from node.runtime.version import program_version
from node.store import intervals, runs
from node.store.core import Core
from node.store.database import Connection, Record
from node.store.runs import KeptPart, LockedRun
from node.trust.statements import StatementKind, digests

INTERVALS_MAX = 10_000
"""Maximum number of intervals in a bundle."""

DECISIONS_MAX = 50
"""Maximum number of planning attempts in a bundle, the newest ones."""

_ABOUT = (
    (
        "The bundle of a run that was measured with Parley. parley run verify FILE --identity "
        "NAME=ed25519:... checks it with public keys alone, without a node; parley run replay FILE "
        "repeats merge, figures, and verdict."
    ),
    (
        "Each signature is a compact JWS (RFC 7515) with Ed25519 (RFC 9864); its kid is 'ed25519:' "
        "and the public key in base64url. Its claim sha256 has, by name, the SHA-256 in base64url "
        "of the canonical JSON (RFC 8785) of the values beside it."
    ),
    (
        "The keys in this file prove nothing by themselves: compare them with what the owners of "
        "the nodes say."
    ),
)
_GAP = "characters are left out]"

Conceal = Callable[[Decision], Decision]
"""Removes from a decision what the user who asks may not see."""


class BundleExporter:
    """Makes bundles of the runs that this node leads."""

    def __init__(self, core: Core, capabilities: Capabilities) -> None:
        self._core = core
        self._capabilities = capabilities
        self._turn = asyncio.Lock()  # one at a time: a long run takes a hundred megabytes

    async def export(self, run: UUID, conceal: Conceal, *, confined: bool = False) -> bytes:
        """Return the signed bundle of a run that is over, as JSON (:class:`RunBundle`).

        It is ``confined`` if it must not say which run displaced this one.

        :raises NotFound: there is no such run here (any more).
        :raises Conflict: it is not over, or another node leads it.
        :raises TooLarge: it has more intervals than a bundle may have.
        """
        async with self._turn:
            stored = await self._read(run, conceal)
            return await asyncio.to_thread(self._build, stored, confined=confined)

    async def _read(self, run: UUID, conceal: Conceal) -> _StoredRun:
        async with self._core.database.transaction() as connection:
            # Locked, so that no late part comes between what is read.
            locked = await runs.lock(connection, run)
            row = await runs.find_run_or_gap(connection, run)
            task = await runs.find_measurement(connection, run)
            if locked is None or row is None or task is None:
                raise NotFound(self._unknown(run))
            _check_complete(row, led_here=locked.lead == self._core.identity)
            parts = await runs.parts(connection, run)
            pieces = await intervals.interval_records(connection, run, INTERVALS_MAX + 1)
            found = await _decisions(connection, row, conceal)
        if len(pieces) > INTERVALS_MAX:
            raise TooLarge(
                f"run {run} has more than {INTERVALS_MAX:,} intervals, too many for one file; "
                "read them from /v1/runs/{id}/intervals"
            )
        return _StoredRun(row, task, locked, parts, pieces, found)

    def _build(self, stored: _StoredRun, *, confined: bool) -> bytes:
        """Put a bundle together, and sign it; with many intervals that takes seconds."""
        row, locked = stored.row, stored.locked
        unsigned = RunBundle(
            type=MEDIA_TYPE,
            version=VERSION,
            about=_ABOUT,
            made=self._maker(row["test"]),
            task=_task(row, stored.task),
            run=_run(row, without_sealed(locked.spec), None if confined else row["displaced_by"]),
            participants=tuple(_participant(each) for each in locked.participants),
            decisions=stored.decisions[:DECISIONS_MAX],
            parts=tuple(_part(part) for part in stored.parts),
            intervals=tuple(_interval(piece) for piece in stored.intervals),
            outcome=self._outcome(row),
            missing=tuple(
                gaps_of_bundle(
                    row["state"], locked.participants, stored.parts, len(stored.decisions)
                )
            ),
            signature="",
        )
        members = unsigned.model_dump(mode="json", exclude={"signature"})
        return orjson.dumps(members | {"signature": self._statement(members)})

    def _unknown(self, run: UUID) -> str:
        settings = self._core.settings
        finished, others = map(duration_text, (settings.keep_finished, settings.keep_failed))
        return (
            f"there is no run {run} on this node; finished runs are deleted with their parts after "
            f"{finished}, others after {others}"
        )

    def _maker(self, test: str) -> BundleMaker:
        return BundleMaker(
            at=self._core.clock.now(),
            name=self._core.settings.name,
            node=self._core.identity,
            version=program_version(),
            test_plugin=plugin_version(test),
        )

    def _outcome(self, row: Record) -> BundleOutcome:
        metrics: tuple[MetricView, ...] = ()
        if row["state"] == RunState.FINISHED and row["result"] is not None:
            figures = self._capabilities.metrics(row["test"], row["result"])
            metrics = tuple(MetricView(**vars(figure)) for figure in figures)
        return BundleOutcome.from_row(row, metrics=metrics)

    def _statement(self, members: dict[str, Any]) -> str:
        if self._core.signer is None:
            raise HostError("this node has no key to sign with")
        claims = {"run": members["run"]["id"], "sha256": digests(members)}
        return self._core.signer.statement(StatementKind.BUNDLE, claims)


@dataclass(frozen=True)
class _StoredRun:
    """The rows of a run in the database."""

    row: Record
    task: Record
    locked: LockedRun
    parts: Sequence[KeptPart]
    intervals: Sequence[Record]
    decisions: tuple[Decision, ...]


def plugin_version(test: str) -> str:
    """Return the distribution that has a test, with its version: ``parley-scheduler 0.1.0``."""
    for each in registry.third_party_plugins():
        if each.group == "parley.tests" and each.name == test and each.fault is None:
            return f"{each.distribution} {each.version}"
    return f"parley-scheduler {program_version()}"


def gaps_of_bundle(
    state: str, participants: Sequence[Participant], parts: Sequence[KeptPart], decisions: int
) -> list[str]:
    """Return what a bundle lacks, and why: sentences."""
    by_place = {part.participant: part for part in parts}
    lacks = [
        f"{participant.name}: {lack}"
        for place, participant in enumerate(participants)
        for lack in _lacks(by_place.get(place), state)
    ]
    if decisions == 0:
        lacks.append("the planning attempts: none is kept any more")
    if decisions > DECISIONS_MAX:
        lacks.append(f"earlier planning attempts: only the newest {DECISIONS_MAX} are here")
    return lacks


def _lacks(part: KeptPart | None, state: str) -> Iterator[str]:
    """Yield what a participant's part lacks, or that there is none."""
    if part is None:
        if state in MERGED:
            yield "sent no part"
        return
    if part.signature is None:
        yield "its node did not sign its part"
    if _GAP in (part.output or ""):
        yield "of the program's long output only the beginning and the end"
    if part.command and not part.output:
        yield "no output: the program had none, or only what its target sent, which is not kept"


def _check_complete(row: Record, *, led_here: bool) -> None:
    """Check that this node has the run to export.

    :raises Conflict: it has not.
    """
    run, state = row["run_id"], row["state"]
    if not led_here:
        lead = row["lead"] or "a node that is not known here any more"
        raise Conflict(
            f"{lead} leads run {run} and has the parts of all; this node has its own only; "
            f"export it there"
        )
    if state not in OVER:
        raise Conflict(f"run {run} is {state}; wait for its end: parley run follow {run}")


async def _decisions(connection: Connection, row: Record, conceal: Conceal) -> tuple[Decision, ...]:
    """Return the planning attempts of the run's slot, one more than a bundle has at most."""
    found = await runs.decisions(connection, row["task_id"], row["slot"], DECISIONS_MAX + 1)
    rows = (dict(each) for each in found)
    return tuple(conceal(Decision(task=each.pop("task_id"), **each)) for each in rows)


def _task(row: Record, task: Record) -> BundleTask:
    return BundleTask.from_row(task, id=row["task_id"])


def _run(row: Record, spec: dict[str, Any], displaced_by: UUID | None) -> BundleRun:
    return BundleRun.from_row(row, id=row["run_id"], spec=spec, displaced_by=displaced_by)


def _participant(one: Participant) -> BundleParticipant:
    return BundleParticipant(name=one.name, node=one.node, address=one.address, context=one.context)


def _part(part: KeptPart) -> BundlePart:
    return BundlePart(**{name: getattr(part, name) for name in BundlePart.model_fields})


def _interval(piece: Record) -> BundleInterval:
    shares = [
        BundleShare(
            participant=int(place),
            result=share["result"],
            reason=share["reason"],
            signature=share.get("signature"),
        )
        for place, share in sorted(piece["parts"].items(), key=lambda item: int(item[0]))
    ]
    return BundleInterval.from_row(piece, shares=tuple(shares))
