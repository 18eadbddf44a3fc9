"""Signing of this node's parts, and the check of those that other participants send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from node.model.intervals import Interval
from node.model.secrets import without_sealed
from node.model.times import format_instant
from node.store.core import Core
from node.store.intervals import SignedInterval
from node.store.runs import KeptPart, LockedRun
from node.trust.run_statements import SHARE_VALUES, SignedRun, check_signed
from node.trust.statements import InvalidStatementError, StatementKind

log = structlog.get_logger()


class PartSigner:
    """Signs with the key of the node, if it has one; simulated nodes have none."""

    def __init__(self, core: Core) -> None:
        self._signer = core.signer
        self._clock = core.clock

    def part(self, run: LockedRun, part: KeptPart) -> KeptPart:
        """Return this node's part with its statement; without one if it cannot be signed."""
        values = part_values(part)
        statement = self._statement(StatementKind.PART, run, part.participant, values)
        return replace(part, signature=statement)

    def intervals(
        self, run: LockedRun, participant: int, batch: Sequence[Interval]
    ) -> list[SignedInterval]:
        """Return this node's shares of intervals with its statements."""
        kind = StatementKind.INTERVAL
        return [
            SignedInterval(
                each.number,
                each.result,
                each.reason,
                self._statement(kind, run, participant, share_values(each), each.number),
            )
            for each in batch
        ]

    def fault_of(self, run: LockedRun, sender: str, part: KeptPart) -> str | None:
        """Return what is wrong with the signature of another participant's part; None if nothing.

        Nodes of other kinds or versions sign nothing, which is no fault.
        """
        return _fault(part.signature, part_values(part), run, sender, part.participant)

    def interval_fault_of(
        self, run: LockedRun, sender: str, participant: int, share: SignedInterval
    ) -> str | None:
        """Return what is wrong with the signature of a share of an interval; None if nothing."""
        values = share_values(share)
        return _fault(share.signature, values, run, sender, participant, share.number)

    def _statement(
        self,
        kind: StatementKind,
        run: LockedRun,
        participant: int,
        values: Mapping[str, Any],
        number: int | None = None,
    ) -> str | None:
        if self._signer is None:
            return None
        try:
            claims = _facts(run).claims(participant, values, self._clock.now(), number)
        except ValueError as error:
            # A result that no other program could read is worth more unsigned than lost.
            log.warning("part not signed", run=str(run.id), error=str(error))
            return None
        return self._signer.statement(kind, claims)


def part_values(part: KeptPart) -> dict[str, Any]:
    """Return the signed values of a part in the form that they have in a bundle."""
    return {
        "result": part.result,
        "reason": part.reason,
        "started_at": _instant(part.started_at),
        "finished_at": _instant(part.finished_at),
        "command": part.command,
        "output": part.output,
        "circumstances": part.circumstances,
    }


def share_values(share: Interval) -> dict[str, Any]:
    """Return the signed values of a share of an interval."""
    return {name: getattr(share, name) for name in SHARE_VALUES}


def _facts(run: LockedRun) -> SignedRun:
    return SignedRun.of(
        run.id,
        run.task,
        revision=run.revision,
        lead=run.lead,
        test=run.test,
        tool=run.tool,
        span=(run.starts_at, run.ends_at),
        spec=without_sealed(run.spec),
        participants=[[each.node, each.context] for each in run.participants],
    )


def _fault(
    signature: str | None,
    values: Mapping[str, Any],
    run: LockedRun,
    sender: str,
    participant: int,
    interval: int | None = None,
) -> str | None:
    if signature is None:
        return None
    try:
        statement = check_signed(
            signature,
            values,
            run=str(run.id),
            lead=run.lead,
            participant=participant,
            node=sender,
            interval=interval,
        )
    except InvalidStatementError as error:
        return f"its signature is not valid: {error}"
    if unlike := _facts(run).unlike(statement):
        return f"its signature is not valid: it is signed for another {' and '.join(unlike)}"
    return None


def _instant(at: int | None) -> str | None:
    return None if at is None else format_instant(at)
