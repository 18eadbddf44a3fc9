"""Secrets in documents: what is told of them, and the forms in which they are kept. Pure.

A field of a spec that is marked with :data:`node.plugins.fields.SECRET` is a text, or a map of
texts. Each of these texts has one of three forms:

* a literal, as somebody has posted it: nothing that is stored or told has one;
* ``{"sealed": "…"}``, the literal as it is stored: encrypted by this host's key. In a spec that
  another node leads the text is sealed by that node's key, and ``here`` is the same sealed here;
* ``{"secret": "NAME"}``, the name of a secret of the host's owner, which tells nothing.

Whatever is told of a spec, to whomever, is :func:`without_sealed` first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic_core import to_jsonable_python

from node.model.errors import FieldFault, InvalidDocument
from node.model.times import WRITTEN_DURATION
from node.model.wire.fields import Document

REDACTED = "(secret)"
"""Replaces a secret value wherever it is shown; in an edit it keeps the stored value."""

SEAL_PREFIX = "parley1:"
"""The beginning of every sealed text, which has the version of its form."""

Change = Callable[[Any], Any]
"""Makes of one text of a secret field, in whichever of its forms it is, what is to be there."""


def secret_fields(model: type[Document]) -> frozenset[str]:
    """Return the names of the fields that are never shown."""
    return frozenset(
        name
        for name, field in model.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("secret")
    )


def literals_in(model: type[Document], spec: Mapping[str, Any]) -> list[str]:
    """Return the pointers of texts where a field takes the names of an owner's secrets only."""
    found = []
    for name in sorted(secret_fields(model) & spec.keys()):
        extra = model.model_fields[name].json_schema_extra
        if isinstance(extra, dict) and extra.get("named"):
            value = spec[name]
            texts = value.items() if isinstance(value, Mapping) else [("", value)]
            found += [f"/{name}/{key}".rstrip("/") for key, it in texts if isinstance(it, str)]
    return found


def is_sealed(value: Any) -> bool:
    """Return whether a value is a text as it is stored."""
    return (
        isinstance(value, Mapping)
        and value.keys() <= {"sealed", "here"}
        and str(value.get("sealed")).startswith(SEAL_PREFIX)
    )


def has_sealed(value: Any) -> bool:
    """Return whether there is a sealed text anywhere in a JSON value."""
    if is_sealed(value):
        return True
    inner = value.values() if isinstance(value, Mapping) else value
    return isinstance(value, Mapping | list | tuple) and any(map(has_sealed, inner))


def name_of(value: Any) -> str | None:
    """Return the name of the owner's secret that a text is; None if it is given otherwise."""
    named = isinstance(value, Mapping) and value.keys() == {"secret"}
    return str(value["secret"]) if named else None


def is_kept(value: Any) -> bool:
    """Return whether a value is a text as it is stored, or the name of one."""
    return is_sealed(value) or name_of(value) is not None


def without_sealed(value: Any) -> Any:
    """Return a JSON value as it is told: without what is sealed in it, wherever that is."""
    return each_sealed(value, lambda _: REDACTED)


def as_introduced(value: Any) -> Any:
    """Return a spec as its lead wrote it, without what a participant has sealed itself."""
    return each_sealed(value, lambda sealed: {"sealed": sealed["sealed"]})


def resealed_spec(value: Any, texts: Mapping[str, str], seal: Callable[[str], str]) -> Any:
    """Return a spec of another lead as a participant stores it.

    ``texts`` has by sealed text what its lead told this host. A text that it did not tell stays
    unknown here, whatever the lead says that this host had sealed.
    """

    def kept(sealed: Mapping[str, str]) -> dict[str, str]:
        own = texts.get(sealed["sealed"])
        return {"sealed": sealed["sealed"], **({} if own is None else {"here": seal(own)})}

    return each_sealed(value, kept)


def sealed_texts(value: Any) -> Iterator[str]:
    """Yield the sealed texts in a spec."""
    found: list[str] = []
    each_sealed(value, lambda sealed: found.append(sealed["sealed"]))
    yield from found


def each_sealed(value: Any, change: Change) -> Any:
    """Return a JSON value in which ``change`` was applied to all that is sealed, wherever it is."""
    if is_sealed(value):
        return change(value)
    if isinstance(value, Mapping):
        return {name: each_sealed(inner, change) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [each_sealed(inner, change) for inner in value]
    return value


def each_text(model: type[Document], spec: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """Return a spec in which ``change`` was applied to each text of its secret fields."""
    result = dict(spec)
    for name in secret_fields(model) & spec.keys():
        value = spec[name]
        if _is_text_map(model, name) and isinstance(value, Mapping):
            result[name] = {key: change(each) for key, each in value.items()}
        elif value is not None:
            result[name] = change(value)
    return result


def names_in(model: type[Document], spec: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the owner's secrets that a spec uses."""
    found: list[str | None] = []
    each_text(model, spec, lambda value: found.append(name_of(value)))
    return frozenset(filter(None, found))


def _is_text_map(model: type[Document], name: str) -> bool:
    annotation = model.model_fields[name].annotation
    members = (
        get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    )
    return any(get_origin(member) is dict for member in members)


def redacted_spec(model: type[Document], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec without secrets: keep the keys of secret maps, hide all secret values."""
    return each_text(model, spec, lambda _: REDACTED)


def restored_spec(
    model: type[Document], spec: Mapping[str, Any], before: Mapping[str, Any], pointer: str = ""
) -> dict[str, Any]:
    """Return the spec with each redacted value replaced by the one in ``before``.

    A value that nobody is told goes where it was given for: whoever changes that, gives it again.

    :raises InvalidDocument: another field has changed; its pointer begins with ``pointer``.
    """
    restored_spec = dict(spec)
    kept = False
    for name in secret_fields(model):
        value, old = spec.get(name), before.get(name)
        if value == REDACTED:
            restored_spec[name], kept = old, kept or has_text(old)
        elif isinstance(value, Mapping):
            old_values = old if isinstance(old, Mapping) else {}
            restored_spec[name] = {
                key: old_values.get(key) if new == REDACTED else new for key, new in value.items()
            }
            kept = kept or any(
                new == REDACTED and has_text(old_values.get(key)) for key, new in value.items()
            )
    if kept and (changed := _other_field(model, spec, before)) is not None:
        reason = (
            f"was changed, and {REDACTED} stands for a value that was given for what was there "
            'before; write the value again, or {"secret": "NAME"} where that is possible'
        )
        raise InvalidDocument([FieldFault(f"{pointer}/{changed}", reason)])
    return restored_spec


def has_text(value: Any) -> bool:
    """Return whether a value is a secret text that nobody is told, or has one."""
    if isinstance(value, Mapping) and not is_sealed(value):
        return any(map(has_text, value.values())) and name_of(value) is None
    return value is not None


def _other_field(
    model: type[Document], spec: Mapping[str, Any], before: Mapping[str, Any]
) -> str | None:
    """Return the first field that is no secret and has changed; how long something takes may."""
    secret = secret_fields(model)
    for name, field in model.model_fields.items():
        if name in secret:
            continue
        key = field.alias or name
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        old, new = (to_jsonable_python(each.get(key, default)) for each in (before, spec))
        if old != new and not any(map(_is_duration, (old, new))):
            return key
    return None


def _is_duration(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(WRITTEN_DURATION, value) is not None
