"""Counts of what the nodes answered, and each answer that no node may give."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from node.api.responses import OWN_FAULT
from node.model.wire.problems import MEDIA_TYPE
from tests.hostile.messages import Message

HONEST = frozenset({502, 503, 504, 507})
"""The statuses by which a node says that another host, or a full one, is at fault."""

_ERROR = 400
_KEPT = 8
"""Number of faults of one kind that are kept with their requests."""
_MARKS = (b"Traceback (most recent call last)", b'File "/', b"asyncpg.exceptions")


@dataclass(frozen=True)
class Fault:
    """One answer, or one finding afterwards, that breaks a promise."""

    check: str
    what: str


@dataclass(frozen=True)
class Received:
    """An answer: status, headers, body, and the seconds until it was there."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float


@dataclass
class Record:
    """Counts of requests and answers, and the faults found; ``secrets`` may be in no answer."""

    secrets: set[bytes] = field(default_factory=set)
    sent: Counter[str] = field(default_factory=Counter)
    by_actor: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    honest: Counter[str] = field(default_factory=Counter)
    """Answers that say whose fault it is that there is none, by request and reason."""
    lost: Counter[str] = field(default_factory=Counter)
    """Requests without an answer, by what became of them."""
    faults: list[Fault] = field(default_factory=list)
    found: Counter[str] = field(default_factory=Counter)
    slow: list[tuple[float, str]] = field(default_factory=list)
    """The requests that were answered last, with the seconds until then, the slowest first."""

    @property
    def slowest(self) -> float:
        """Return the seconds until the slowest answer."""
        return max((seconds for seconds, _ in self.slow), default=0.0)

    @property
    def total(self) -> int:
        """Return the number of requests that were sent."""
        return self.sent.total()

    def fault(self, check: str, what: str) -> None:
        """Note that a promise is broken; of many of a kind the first ones are kept."""
        self.found[check] += 1
        if self.found[check] <= _KEPT:
            self.faults.append(Fault(check, what))

    def count(self, family: str, actor: str, number: int = 1) -> None:
        """Count requests that were sent."""
        self.sent[family] += number
        self.by_actor[actor] += number

    def judge(self, message: Message, received: Received) -> None:
        """Count an answer, and note what is wrong about it."""
        self.count(message.family, message.actor)
        self.slow = sorted([*self.slow, (received.seconds, str(message))], reverse=True)[:_KEPT]
        self.judge_answer(str(message), received, message.allowed)
        if (
            received.headers.get("X-Content-Type-Options") != "nosniff"
            and received.status != _ERROR
        ):
            self.fault("nosniff", str(message))

    def judge_answer(
        self, request: str, received: Received, allowed: Collection[int] | None = None
    ) -> None:
        """Note what is wrong about the answer to a request that is described in words."""
        self.statuses[received.status] += 1
        said = f"{request} → {received.status} {received.body[:300].decode(errors='replace')}"
        if received.status in HONEST and _problem(received) is not None:
            self.honest[f"{received.status} {_title(received)}: {request[:60]}"] += 1
        elif received.status >= 500:
            self.fault("5xx", said)
        elif allowed is not None and received.status not in allowed:
            self.fault("wrong status", f"{said}; right: {sorted(allowed)}")
        if received.status > _ERROR and _problem(received) is None:
            self.fault("no problem document", said)
        if OWN_FAULT.encode() in received.body:
            self.fault("internal error", said)
        for mark in _MARKS:
            if mark in received.body and mark not in request.encode():
                self.fault("traceback in an answer", said)
        self.look_for_secrets(said, [received.body, *_lines(received.headers)])

    def look_for_secrets(self, where: str, texts: Iterable[bytes]) -> None:
        """Note each secret that is in one of these texts."""
        for text in texts:
            for secret in self.secrets:
                if secret in text:
                    self.fault("secret shown", f"{secret[:12].decode()}… in {where[:300]}")


def _lines(headers: Mapping[str, str]) -> list[bytes]:
    return [f"{name}: {value}".encode() for name, value in headers.items()]


def _problem(received: Received) -> dict[str, object] | None:
    """Return the problem document of an answer; None if it has none that is complete."""
    if not received.headers.get("Content-Type", "").startswith(MEDIA_TYPE):
        return None
    try:
        document = json.loads(received.body)
    except ValueError:
        return None
    complete = {"type", "title", "status", "detail"} <= set(document)
    return document if complete and document["status"] == received.status else None


def _title(received: Received) -> object:
    return (_problem(received) or {}).get("title")
