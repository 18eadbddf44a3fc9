"""Problem documents (RFC 9457): what happened, why, and what to do."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from node.model.errors import (
    Conflict,
    FieldFault,
    InvalidDocument,
    LimitRefused,
    LimitUsedUp,
    NoTime,
    ParleyError,
    PeerError,
    PeerFailed,
    RequestError,
    TooFast,
    TooManyRequests,
    UnknownPeer,
    UnknownToPeer,
)
from node.model.wire.fields import Document, Instant, is_absent
from node.model.wire.host_limits import TaskLimit

MEDIA_TYPE = "application/problem+json"
_TYPE_PREFIX = "/problems/"


def type_of(code: str) -> str:
    """Return the type of the problem documents of a code: the path of its page on the node."""
    return _TYPE_PREFIX + code


class Alternative(Document):
    """Another task document that was tried with the same proposals."""

    kind: str = Field(description="later, shorter, tool, slip or less-often.")
    differs: str = Field(description="The difference, in one sentence.")
    distance: float = Field(
        description="Distance from the original task, 0 to 1, plus 1 if it places only some runs."
    )
    asked: int
    placed: int
    starts_at: Instant = Field(description="Start of its first run.")
    displacing: int = Field(description="Number of its runs that would displace others.")
    document: dict[str, Any] = Field(description="A task document, ready for POST /v1/tasks.")


class Fault(Document):
    """A wrong field of a document."""

    pointer: str = Field(description="A JSON pointer; ?NAME is a parameter of the query.")
    detail: str = Field(description="What is wrong, and what to write.")


class Problem(Document):
    """The body of every answer that is not a success."""

    type: str = Field(
        description="The path of a page on this node about this type of problem; its last part is "
        "the code."
    )
    title: str = Field(description="The type in a few words.")
    status: int
    detail: str = Field(description="What happened, why, and what to do.")
    instance: str | None = Field(None, description="The path of the request.")
    errors: tuple[Fault, ...] = Field((), description="The wrong fields of the document.")
    retry_after: int | None = Field(
        None, ge=0, description="Number of seconds after which to ask again, if that may help."
    )
    offers: tuple[Alternative, ...] = Field(
        (), description="Tasks that would find time instead: at most three, the nearest first."
    )
    limits: tuple[TaskLimit, ...] = Field(
        (), description="What the limits of hosts do not allow, and what they would allow."
    )

    epoch: int | None = Field(
        None,
        ge=0,
        lt=2**63,
        exclude_if=is_absent,
        description="To another node, the lease epoch of the task that is known here, if its own "
        "is older.",
    )

    @property
    def code(self) -> str:
        """The stable last part of the type, as in ``node.model.errors``."""
        return self.type.rsplit("/", 1)[-1]


def problem_of(error: ParleyError, instance: str | None = None) -> Problem:
    """Return the problem document of an error."""
    faults = error.faults if isinstance(error, InvalidDocument) else []
    return Problem(
        type=type_of(error.code),
        title=error.title,
        status=error.status,
        detail=error.detail,
        instance=instance,
        errors=tuple(Fault(pointer=fault.pointer, detail=fault.detail) for fault in faults),
        retry_after=error.retry_after_s if isinstance(error, TooManyRequests) else None,
        offers=tuple(error.offers) if isinstance(error, NoTime) else (),
        limits=tuple(error.limits) if isinstance(error, LimitRefused) else (),
        epoch=error.epoch if isinstance(error, Conflict) else None,
    )


def error_of(problem: Problem) -> ParleyError:
    """Return the error that a problem document was created from, on the client's side."""
    if problem.errors:
        return InvalidDocument([FieldFault(f.pointer, f.detail) for f in problem.errors])
    for later in (TooManyRequests, LimitUsedUp, TooFast):
        if problem.code == later.code:
            return later(problem.detail, problem.retry_after or 1)
    if problem.code == LimitRefused.code:
        return LimitRefused(problem.detail, problem.limits)
    if problem.code == NoTime.code:
        return NoTime(problem.detail, problem.offers)
    for kind in _concrete(ParleyError):
        if kind.code == problem.code:
            return _of_kind(kind, problem)
    base = RequestError if problem.status < 500 else PeerError  # noqa: PLR2004 - HTTP's own border
    return base(problem.detail)


def _of_kind(kind: type[ParleyError], problem: Problem) -> ParleyError:
    if issubclass(kind, Conflict):
        return kind(problem.detail, epoch=problem.epoch)
    return kind(problem.detail)


def unknown_to(name: str) -> str:
    """Return how a sentence about a node begins that does not know this one."""
    return f"{name} does not know this node"


def peer_error_of(problem: Problem, name: str) -> ParleyError:
    """Return the error with which another node answered: what its host cannot do is its fault.

    Otherwise the missing database of another node would seem to be that of this one. Nor is it this
    node's fault that another one does not know it.
    """
    error = error_of(problem)
    if isinstance(error, UnknownPeer):
        why = "its database was lost, or this node was never added there, or removed"
        return UnknownToPeer(f"{unknown_to(name)}: {why}")
    if isinstance(error, RequestError | PeerError):
        return error
    return PeerFailed(f"{name} cannot do it: {error.detail}")


def _concrete(kind: type[ParleyError]) -> list[type[ParleyError]]:
    kinds = [kind] if kind is not InvalidDocument else []
    for child in kind.__subclasses__():
        kinds.extend(_concrete(child))
    return kinds
