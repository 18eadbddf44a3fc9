"""Secrets in posted documents: private members, texts of secret members of specs, keys.

Members whose names begin with ``_`` are null in the document that is stored, and a second one,
sealed as a whole, has them. The texts of secret members, such as ``headers`` of ``http``, are
sealed in their places, like those of our own specs; whoever posted the task recognises it by them,
so that they alone are told them again. The key of a task is sealed as well.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from node.model.secrets import REDACTED, is_sealed
from node.pscheduler.posted import as_text, texts_of
from node.pscheduler.tests.contract import Document
from node.pscheduler.tests.registry import LANGUAGES
from node.store.pscheduler import PostedRecord
from node.trust.sealing import POSTED, SealingKey


class StoredTexts(NamedTuple):
    """The columns of a posted document: as anybody may read it, the whole one, and its key."""

    document: str
    secret: str | None
    key: str | None


def stored_texts(key: SealingKey, document: Document, task_key: str | None) -> StoredTexts:
    """Return a document as it is stored; ``task_key`` is what a change of the task needs."""
    shown, whole = texts_of(document)
    sealed = sealed_document(key, json.loads(shown))
    return StoredTexts(
        as_text(sealed),
        None if whole is None else as_text({"sealed": key.seal(whole, POSTED)}),
        None if task_key is None else key.seal(task_key, POSTED),
    )


def whole_document(key: SealingKey, record: PostedRecord) -> Document | None:
    """Return a document with all that is secret in it; None if it is gone.

    Private members that cannot be read are null, and other texts are the mark of a secret.
    """
    if record.document is None:
        return None
    whole = None if record.secret is None else json.loads(record.secret)
    if whole is not None and is_sealed(whole):
        whole = key.read(whole["sealed"], POSTED)
        whole = None if whole is None else json.loads(whole)
    return opened_document(key, json.loads(record.document)) if whole is None else whole


def opened_document(key: SealingKey, document: Document) -> Document:
    """Return a stored document with the texts of its secret members."""
    return _each_secret(document, lambda text: _opened_text(key, text))


def sealed_document(key: SealingKey, document: Document) -> Document:
    """Return a document with the texts of its secret members as they are stored."""
    return _each_secret(document, lambda text: _sealed_text(key, text))


def told_document(document: Document) -> Document:
    """Return a document as it is told to others than who posted it."""
    return _each_secret(document, lambda _: REDACTED)


def told_spec(test: str, spec: Document) -> Document:
    """Return the spec of a test of pScheduler without the texts of its secret members."""
    told: Document = told_document({"test": {"type": test, "spec": spec}})["test"]["spec"]
    return told


def key_of(key: SealingKey, record: PostedRecord) -> str | None:
    """Return what a change of a task needs to know; None if it has no key, or it cannot be read."""
    return None if record.key is None else key.read(record.key, POSTED)


def may_change(key: SealingKey, record: PostedRecord, given: str | None, address: str) -> bool:
    """Return whether a caller may change a task: with its key, or from where it came without one.

    A key that cannot be read is one all the same, which nobody knows.
    """
    if record.key is None:
        return address == record.requester
    own = key_of(key, record)
    if own is None or given is None:
        return False
    return hmac.compare_digest(given.encode(errors="replace"), own.encode())


def _each_secret(document: Document, change: Callable[[Any], Any]) -> Document:
    """Return a document in which each text of the secret members of its spec was changed."""
    test = document.get("test")
    if not isinstance(test, dict) or not isinstance(test.get("spec"), dict):
        return document
    language = LANGUAGES.get(str(test.get("type")))
    if language is None or not language.secrets & test["spec"].keys():
        return document
    spec = {
        name: _each_text(value, change) if name in language.secrets else value
        for name, value in test["spec"].items()
    }
    return {**document, "test": {**test, "spec": spec}}


def _each_text(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, str) or is_sealed(value):
        return change(value)
    if isinstance(value, dict):
        return {name: _each_text(inner, change) for name, inner in value.items()}
    return value


def _sealed_text(key: SealingKey, text: Any) -> Any:
    return {"sealed": key.seal(text, POSTED)} if isinstance(text, str) else text


def _opened_text(key: SealingKey, text: Any) -> str:
    opened = key.read(text["sealed"], POSTED) if is_sealed(text) else str(text)
    return REDACTED if opened is None else opened
