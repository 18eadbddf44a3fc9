"""The state of the policies as a JSON document and back. Pure.

Records are objects, mappings are lists of ``[key, value]`` (a key of several words is a list), and
fractions are ``"1/3"``. Unknown fields, from another version, are ignored, and missing fields get
their defaults.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any, Union, get_args, get_origin, get_type_hints

from lead.policy.view import RememberedState


def encode_state(state: RememberedState) -> dict[str, Any]:
    """Return the state as a document to store."""
    document: dict[str, Any] = _plain(state)
    return document


def decode_state(document: Mapping[str, Any]) -> RememberedState:
    """Return the state in a document."""
    state: RememberedState = _read(RememberedState, document)
    return state


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return [[_key(key), _plain(it)] for key, it in value.items()]
    if isinstance(value, Fraction):
        return str(value)
    return value


def _key(key: str | tuple[str, ...]) -> str | list[str]:
    return list(key) if isinstance(key, tuple) else key


def _read(kind: Any, value: Any) -> Any:
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        fields_known = {name: it for name, it in value.items() if name in hints}
        constructor: Any = kind
        return constructor(**{name: _read(hints[name], it) for name, it in fields_known.items()})
    origin = get_origin(kind)
    if origin in {Union, types.UnionType}:
        return _read_number(get_args(kind), value)
    if origin is not None and issubclass(origin, Mapping):
        inner = get_args(kind)[1]
        return {_key_of(key): _read(inner, it) for key, it in value}
    return tuple(value) if origin is tuple else value


def _read_number(kinds: tuple[Any, ...], value: Any) -> Any:
    """Read an exact number or None."""
    return Fraction(value) if isinstance(value, str) and Fraction in kinds else value


def _key_of(key: str | list[str]) -> str | tuple[str, ...]:
    return tuple(key) if isinstance(key, list) else key
