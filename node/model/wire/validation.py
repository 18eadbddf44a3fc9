"""Validation errors in words: what is wrong, what is allowed, and what to do. Pure.

Every document that comes in is validated by its model. This module turns pydantic's errors into
pointers (RFC 6901) and sentences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from node.model.errors import FieldFault
from node.model.resources import RESOURCE, TAKING
from node.model.similar import similar_words, suggestion
from node.model.wire.fields import KIND

PATTERNS: Final[Mapping[str, str]] = {
    r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$": "the name of an interface, as 'ip link' shows it",
    r"^[a-z][a-z0-9-]{0,62}$": "a small letter, then at most 62 small letters, digits and '-'",
    r"^[a-z][a-z0-9-]{0,30}$": "a small letter, then at most 30 small letters, digits and '-'",
    r"^[a-z][a-z0-9_]{0,62}$": "a small letter, then at most 62 small letters, digits and '_'",
    r"^[a-z][a-z0-9_]{0,14}$": "a small letter, then at most 14 small letters, digits and '_'",
    r"^[a-z][a-z0-9_.:-]{0,62}$": "a small letter, then at most 62 small letters, digits, '_', "
    "'.', ':' and '-'",
    r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$": "at most 63 small letters, digits, '.' and '-', with "
    "a letter or digit at both ends",
    r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$": "a letter or digit, then at most 62 letters, digits, "
    "'.', '_', '@' and '-'",
    r"^[A-Za-z0-9][A-Za-z0-9 ._:/@-]{0,62}$": "the name of an interface, as its agent tells it",
    RESOURCE: "a letter or digit, then at most 62 letters, digits, '.', '_' and '-'",
    TAKING: "NAME@NODE or NAME@NODE:AMOUNT, such as link@hub:2",
    r"^[!#-\[\]-~]{1,32}$": "at most 32 ASCII characters without spaces, '\"' and '\\'",
    r"^(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(:[0-9]{1,5})?$": "HOST or HOST:PORT",
    r"^(\[[0-9A-Fa-f:.]{2,45}\]:[0-9]{1,5}|[0-9A-Za-z:_.-]{1,259})$": "HOST or HOST:PORT",
    r"^ed25519:[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$": "ed25519: and 43 characters, exactly as "
    "parley node show prints it there",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$": "a letter or digit, then at most 62 letters, digits, "
    "'.', '_' and '-'",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}@[^\s@]{1,253}(:[1-9][0-9]{0,5})?$": "RESOURCE@NODE, or "
    "RESOURCE@NODE:AMOUNT for more than 1",
    r"^[^\x00-\x1f\x7f]{1,100}$": "one line of 1 to 100 characters",
    r"^[^\x00-\x1f\x7f]{1,200}$": "ID, or ID@NODE with the node that leads the task",
}
"""Descriptions of the patterns of fields that people write."""

FAULTS_MAX = 20
"""Maximum number of faults in an answer."""

NAMED_MAX = 10_000
"""Maximum number of faults of a document of which any is named."""

_ENTRIES_MAX = 2000
"""No list of objects in a document is longer, and pydantic stops where one becomes too long."""

_SHOWN = 40
_KEY: Final = "[key]"
_OPTION: Final = re.compile(r"'([^']*)'|(-?\d+)")


def faults_of(error: ValidationError, kind: type[BaseModel], prefix: str = "") -> list[FieldFault]:
    """Convert pydantic's errors to pointers and sentences.

    ``kind`` is the model of the document, which defines its fields; ``prefix`` is the place of the
    document in a larger one. At most :data:`FAULTS_MAX` are returned: a document with 100,000
    unknown fields must not occupy the service for seconds, nor be answered with megabytes.
    """
    if error.error_count() > NAMED_MAX:  # pydantic would build all of them to return the first
        fault = f"has {error.error_count()} faults; it {_object_text(_fields(kind, []))}"
        return [FieldFault(prefix, fault)]
    errors = error.errors(include_url=False)
    named = errors if len(errors) <= FAULTS_MAX else errors[: FAULTS_MAX - 1]
    faults = [
        FieldFault(prefix + _pointer(place_of(each)), _fault_text(each, kind))
        for each in map(dict, named)
    ]
    if len(errors) > len(named):
        faults.append(FieldFault(prefix, f"has {len(errors) - len(named)} more faults"))
    return faults


def many_unknown(
    document: Mapping[str, Any],
    kind: type[BaseModel],
    deep: bool = False,  # noqa: FBT001, FBT002
) -> list[FieldFault]:
    """Return the faults of a document with more unknown fields than are named; none otherwise.

    Pydantic keeps a kilobyte for each fault, so such a document must not be validated. ``deep``:
    look into the objects inside, too.
    """
    if kind.model_config.get("extra") != "forbid":
        return []
    places = _unknown_places(document, kind, []) if deep else _unknown_at(document, kind, [])
    unknown = list(islice(places, FAULTS_MAX + 1))
    if len(unknown) <= FAULTS_MAX:
        return []
    named = unknown[: FAULTS_MAX - 1]
    faults = [
        FieldFault(_pointer(at), _unknown_field_text(_fields(kind, at[:-1]), at)) for at in named
    ]
    return [*faults, FieldFault("", "has more unknown fields")]


def _unknown_at(
    value: Mapping[str, Any], kind: type[BaseModel], place: list[int | str]
) -> Iterator[list[int | str]]:
    fields = _fields(kind, [])
    yield from ([*place, name] for name in value if name not in fields)


def _unknown_places(value: Any, kind: Any, place: list[int | str]) -> Iterator[list[int | str]]:
    """Yield the places of the fields that no model has, for values of any annotation."""
    models = [each for each in _members(kind) if _is_model(each)]
    if isinstance(value, Mapping) and len(models) == 1:
        yield from _unknown_at(value, models[0], place)
    children = value.items() if isinstance(value, Mapping) else enumerate(value[:_ENTRIES_MAX])
    for part, child in children:
        if child and isinstance(child, Mapping | list):
            for inner in _annotations_inside(kind, part):
                yield from _unknown_places(child, inner, [*place, part])


def place_of(error: Mapping[str, Any]) -> list[int | str]:
    """Return the place of an error without union tags and key marks, which only the model has."""
    place = [part for part in error["loc"] if not str(part).startswith(KIND)]
    return place[:-1] if _is_key(error) else place


def _is_key(error: Mapping[str, Any]) -> bool:
    """Return whether an error is about the name of an entry, not about its value."""
    place = error["loc"]
    return len(place) > 1 and place[-1] == _KEY and place[-2] == error["input"]


def _pointer(place: Sequence[int | str]) -> str:
    parts = (str(part) for part in place)
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in parts)


# -- sentences -------------------------------------------------------------------------------------


def _fault_text(error: Mapping[str, Any], kind: type[BaseModel]) -> str:
    code, value, context = str(error["type"]), error["input"], error.get("ctx", {})
    place = place_of(error)
    if _is_secret(kind, place):
        value = _SECRET
    match code:
        case "missing" | "extra_forbidden":
            fields = _fields(kind, place[:-1])
            return (
                _missing_field_text(fields, place)
                if code == "missing"
                else _unknown_field_text(fields, place)
            )
        case "model_type" | "model_attributes_type" | "dict_type":
            return _object_text(_fields(kind, place))
        case "literal_error" | "enum":
            expected = str(context["expected"])
            options = [word or number for word, number in _OPTION.findall(expected)]
            return _unknown_word_text(value, options or [expected.lower()])  # True is written true
        case "string_pattern_mismatch" if context["pattern"] in PATTERNS:
            return f"is {_value_text(value)}; write {PATTERNS[context['pattern']]}"
    if code in _KINDS:
        return f"must be {_KINDS[code]}, not {_value_text(value)}"
    limit = _LIMITS.get(code)
    own = str(error["msg"]).removeprefix("Value error, ")
    return own if limit is None else limit(context).replace(_VALUE, _value_text(value))


_VALUE = "\0"
_SECRET = object()
"""Replaces a value that is never shown, even to its sender, since others see screens and logs."""
_KINDS: Final = {
    "tuple_type": "a list, […]",
    "list_type": "a list, […]",
    "string_type": "a string",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number below 2 to the power of 63",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "float_type": "a number",
    "float_parsing": "a number",
    "decimal_type": "a number",
    "decimal_parsing": "a number",
    "finite_number": "a finite number",
    "uuid_type": "an id (a whole UUID, as -o ids prints it)",
    "uuid_parsing": "an id (a whole UUID, as -o ids prints it)",
}
_LIMITS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "greater_than_equal": lambda it: f"is {_VALUE}; give {it['ge']} or more",
    "greater_than": lambda it: f"is {_VALUE}; give more than {it['gt']}",
    "less_than_equal": lambda it: f"is {_VALUE}; give {it['le']} or less",
    "less_than": lambda it: f"is {_VALUE}; give less than {it['lt']}",
    "string_too_long": lambda it: f"is longer than {it['max_length']} characters; shorten it",
    "string_too_short": lambda it: f"is {_VALUE}; write {it['min_length']} characters or more",
    "too_long": lambda it: f"has more than {it['max_length']} entries; leave some out",
    "too_short": lambda it: f"has fewer than {it['min_length']} entries; add some",
    "decimal_max_digits": lambda it: f"is {_VALUE}; write at most {it['max_digits']} digits",
    "decimal_whole_digits": lambda it: (
        f"is {_VALUE}; write at most {it['whole_digits']} digits before the point"
    ),
    "decimal_max_places": lambda it: (
        f"is {_VALUE}; write at most {it['decimal_places']} digits behind the point"
    ),
}


def _value_text(value: object) -> str:
    """Return a value as JSON, shortened; for objects and lists only their kind."""
    if value is _SECRET:
        return "(secret)"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _unknown_word_text(value: object, options: Sequence[str]) -> str:
    """Describe an unknown word, with the most similar options, or all of them."""
    near = similar_words(str(value), options)
    return f"{_value_text(value)} is not known; {_choice_text(near or options)}"


def _choice_text(words: Sequence[str]) -> str:
    return f"write {' or '.join(filter(None, (', '.join(words[:-1]), words[-1])))}"


def _unknown_field_text(fields: Mapping[str, str | None], place: Sequence[int | str]) -> str:
    fault = "no such field"
    if not fields:
        return fault
    # A name that begins with NUL looks like a union tag, which a place does not have.
    return f"{fault}; {suggestion(str(place[-1]) if place else '', fields)}"


def _missing_field_text(fields: Mapping[str, str | None], place: Sequence[int | str]) -> str:
    meaning = fields.get(str(place[-1]))
    return "is required" if meaning is None else f"is required: {meaning}"


def _object_text(fields: Mapping[str, str | None]) -> str:
    return f"must be an object with: {', '.join(fields)}" if fields else "must be an object, {…}"


# -- models ----------------------------------------------------------------------------------------


def _fields(kind: type[BaseModel], place: Sequence[int | str]) -> dict[str, str | None]:
    """Return the fields of the document at this place, with their descriptions, if known."""
    kinds: list[Any] = [kind]
    for part in place:
        kinds = [inner for each in kinds for inner in _annotations_inside(each, part)]
    models = [each for outer in kinds for each in _members(outer) if _is_model(each)]
    return {
        field.alias or name: field.description
        for model in models
        for name, field in model.model_fields.items()
    }


def _is_secret(kind: type[BaseModel], place: Sequence[int | str]) -> bool:
    """Return whether the place is in a field that is marked secret (``plugins/fields.py``)."""
    kinds: list[Any] = [kind]
    for part in place:
        models = [each for outer in kinds for each in _members(outer) if _is_model(each)]
        for name, field in ((n, f) for model in models for n, f in model.model_fields.items()):
            extra = field.json_schema_extra
            if part == (field.alias or name) and isinstance(extra, Mapping) and extra.get("secret"):
                return True
        kinds = [inner for each in kinds for inner in _annotations_inside(each, part)]
    return False


def _members(annotation: Any) -> Iterator[Any]:
    """Yield the alternatives of an annotation, without unions and ``Annotated``."""
    if get_origin(annotation) is Annotated:
        yield from _members(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for each in get_args(annotation):
            yield from _members(each)
    else:
        yield annotation


def _annotations_inside(annotation: Any, part: int | str) -> Iterator[Any]:
    """Yield the annotations of what may be at this field, index, or key."""
    for member in _members(annotation):
        if _is_model(member):
            for name, field in member.model_fields.items():
                if part == (field.alias or name):
                    yield field.annotation
        elif get_origin(member) in (tuple, list, dict):
            yield get_args(member)[1 if get_origin(member) is dict else 0]


def _is_model(member: Any) -> bool:
    return isinstance(member, type) and issubclass(member, BaseModel)
