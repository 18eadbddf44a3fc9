"""Read the answers of a node: documents, problem documents, and those of other services.

It loads nothing that is slow to load unless an answer is a problem, for commands that answer soon.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from node.model.errors import FieldFault, ParleyError, PeerAnswered

Record = TypeVar("Record")

_SERVER_FAULT = 500
_REFUSED = 400
_REDIRECTED = 300
_SHOWN_CHARACTERS = 80
_VERSIONS = "do the versions of node and program differ?"


@dataclass(frozen=True)
class Page(Generic[Record]):
    """Part of a list, and the cursor of the next part; ``None`` at the end."""

    items: tuple[Record, ...]
    next: str | None


@dataclass(frozen=True)
class Answer:
    """An answer over HTTP, with its whole body."""

    server: str
    """The URL that was asked."""
    status: int
    reason: str
    content_type: str
    raw: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Members(dict[str, Any]):
    """An object of an answer; a member that it does not have is ``None``.

    A node of another version may leave out members that this program knows.
    """

    def __missing__(self, name: str) -> None:
        """Return the value of a member that the object does not have."""


def document_of(answer: Answer) -> Any:
    """Return the document of an answer.

    :raises ParleyError: it is a problem document, or no answer of a node.
    """
    try:
        document = json.loads(answer.raw) if answer.raw else None
    except (ValueError, RecursionError):
        raise foreign_answer_error(answer) from None
    if answer.status < _REDIRECTED:
        return document
    if answer.status < _REFUSED or not isinstance(document, dict):
        raise foreign_answer_error(answer)
    raise _error_of_problem(answer, document)


def list_of(document: object) -> tuple[list[Any], str | None]:
    """Return what is in a list document, and its cursor, which may be missing.

    :raises PeerAnswered: it is no list.
    """
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(items, list):
        raise PeerAnswered(f"the node's answer is not a list; {_VERSIONS}")
    return items, document.get("next")


def records_in(document: object) -> Page[Members]:
    """Return the objects of a list document; its cursor may be missing.

    :raises PeerAnswered: it is no list of objects.
    """
    items, cursor = list_of(document)
    return Page(tuple(map(object_of, items)), cursor)


def object_of(document: object) -> Members:
    """Return a document as an object.

    :raises PeerAnswered: it is none.
    """
    members = _with_members(document)
    if not isinstance(members, Members):
        raise PeerAnswered(f"the node's answer is not an object; {_VERSIONS}")
    return members


def _with_members(value: Any) -> Any:
    if isinstance(value, dict):
        return Members((name, _with_members(inner)) for name, inner in value.items())
    return [_with_members(inner) for inner in value] if isinstance(value, list) else value


def _error_of_problem(answer: Answer, document: dict[str, Any]) -> ParleyError:
    from pydantic import ValidationError  # slow to load, and needed for problems only

    from node.model.wire.problems import Problem, error_of

    known = {key: document[key] for key in Problem.model_fields if key in document}
    try:
        return error_of(Problem.model_validate(known))
    except ValidationError:
        return foreign_answer_error(answer)


def foreign_answer_error(answer: Answer) -> ParleyError:
    """Return the error for an answer that no node has given: of a proxy, or another service."""
    shown = " ".join(answer.raw.decode(errors="replace").split())[:_SHOWN_CHARACTERS]
    told = f"{answer.status} {answer.reason} ({answer.content_type}): {shown or 'nothing'}"
    if answer.status >= _SERVER_FAULT:
        return ParleyError(f"{answer.server} failed with {told}; see the log of the node")
    return PeerAnswered(
        f"{answer.server} does not answer like a node but with {told}; name one with --server"
    )


def non_finite_faults(document: Any, pointer: str = "") -> list[FieldFault]:
    """Return a fault for each number in a document that JSON cannot represent: nan and infinity."""
    if isinstance(document, float) and not math.isfinite(document):
        return [FieldFault(pointer, f"is {document}; give a finite number")]
    steps: Iterable[tuple[object, Any]] = ()
    if isinstance(document, Mapping):
        steps = document.items()
    elif isinstance(document, list | tuple):
        steps = enumerate(document)
    return [
        fault
        for step, value in steps
        for fault in non_finite_faults(
            value, f"{pointer}/{str(step).replace('~', '~0').replace('/', '~1')}"
        )
    ]
