"""Parse a node's answers into the wire models that the API documents."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from node.client.answers import Page as Page  # noqa: PLC0414 - callers name it
from node.model.errors import FieldFault, PeerAnswered
from node.model.wire.validation import faults_of

Model = TypeVar("Model", bound=BaseModel)


class NodeApi(ABC):
    """The base of the parts of the client of a node's API."""

    @abstractmethod
    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, Any] | None = None,
        wait_s: int = 0,
    ) -> Any:
        """Send one request, and return the JSON of its answer."""


def read(model: type[Model], document: object) -> Model:
    """Parse a document of a node, of this version or one beside it, as a model.

    What a later node tells in addition is left out. Nodes before 0.3 tell no headline: the test, or
    the task's id where they tell no test, stands for it.

    :raises PeerAnswered: it does not fit; the message names the first fault.
    """
    if "headline" in model.model_fields and isinstance(document, dict):
        document = {"headline": _subject_of(document), **document}
    try:
        return model.model_validate(document, extra="ignore")
    except ValidationError as error:
        fault = faults_of(error, model)[0]
        msg = (
            f"the node's answer is not the {model.__name__} that this program expects: "
            f"{fault.pointer or '/'} {fault.detail}; do their versions differ?"
        )
        raise PeerAnswered(msg) from error


def _subject_of(document: Mapping[str, Any]) -> Any:
    """Return the test of a task, as its document has it, or of a run; else its task."""
    test = document.get("test")
    return test.get("type") if isinstance(test, Mapping) else test or document.get("task")


def page(model: type[Model], document: object) -> Page[Model]:
    """Parse a list document; its cursor may be missing."""
    if not isinstance(document, dict) or not isinstance(document.get("items"), list):
        msg = "the node's answer is not a list; do the versions of node and program differ?"
        raise PeerAnswered(msg)
    items = tuple(read(model, item) for item in document["items"])
    return Page(items, document.get("next"))


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
