"""Parse a node's answers into the wire models that the API documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from node.client.answers import Page as Page  # noqa: PLC0414 - callers name it
from node.client.answers import list_of
from node.model.errors import PeerAnswered
from node.model.wire.validation import faults_of

Model = TypeVar("Model", bound=BaseModel)


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
    items, cursor = list_of(document)
    return Page(tuple(read(model, item) for item in items), cursor)
