"""Predicates over node attributes: what a pool is, and what a task asks of the nodes of a pool.

A predicate is a JSON object; a node meets it if it meets every member of it::

    {"country": "DE"}                    equal
    {"site": ["a", "b"]}                 one of these
    {"cpu_mbps": {">=": 1000, "<": 10000}}
    {"country": {"!=": "DE"}}            there, and something else
    {"rack": {"exists": false}}
    {"tool:iperf3": true}
    {"not": {…}}, {"all": [{…}, …]}, {"any": [{…}, …]}

Attributes are text, numbers or true and false; values of different kinds are never equal, and only
numbers have an order. An attribute that a node does not have meets nothing but
``{"exists": false}``. The empty predicate is met by every node.

Everything here is pure: attributes come in as mappings, verdicts and sentences go out.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from node.model.errors import FieldFault, InvalidDocument

Value = str | int | float | bool
"""What an attribute may be."""

Attributes = Mapping[str, Value]

NAME: Final = re.compile(r"[a-z][a-z0-9_.:-]{0,62}|context:[A-Za-z0-9_.:-]{1,54}", re.ASCII)
"""The name of an attribute."""

WORDS: Final = frozenset({"not", "all", "any"})
"""What cannot be the name of an attribute."""

DEPTH_MAX: Final = 8
SIZE_MAX: Final = 200
"""Most conditions in one predicate."""

_SHOWN: Final = 8
_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPERATORS: Final = ("=", "!=", *_ORDERS, "in", "exists")


@dataclass(frozen=True)
class Condition:
    """One attribute compared; ``pointer`` says where it stands in the document."""

    pointer: str
    attribute: str
    operator: str
    operand: Any

    def met_by(self, attributes: Attributes) -> bool:
        """Whether these attributes meet it."""
        if self.operator == "exists":
            return (self.attribute in attributes) is self.operand
        if self.attribute not in attributes:
            return False
        value = attributes[self.attribute]
        match self.operator:
            case "=":
                return equal_values(value, self.operand)
            case "!=":
                return not equal_values(value, self.operand)
            case "in":
                return any(equal_values(value, each) for each in self.operand)
            case _:
                return _is_number(value) and _ORDERS[self.operator](value, self.operand)

    def in_words(self) -> str:
        """``cpu_mbps >= 1000``."""
        if self.operator == "exists":
            return f"{self.attribute} {'exists' if self.operand else 'does not exist'}"
        if self.operator == "in":
            return f"{self.attribute} in {', '.join(map(format_value, self.operand))}"
        return f"{self.attribute} {self.operator} {format_value(self.operand)}"

    def faults(self, attributes: Attributes) -> list[UnmetCondition]:
        """Why these attributes do not meet it; nothing if they do."""
        if self.met_by(attributes):
            return []
        if self.attribute not in attributes:
            return [UnmetCondition(self.pointer, self.in_words(), f"it has no {self.attribute}")]
        there = f"its {self.attribute} is {format_value(attributes[self.attribute])}"
        return [UnmetCondition(self.pointer, self.in_words(), there)]


@dataclass(frozen=True)
class AllOf:
    """All of these; none of them is met by every node."""

    parts: tuple[Predicate, ...]

    def met_by(self, attributes: Attributes) -> bool:
        """Whether these attributes meet it."""
        return all(part.met_by(attributes) for part in self.parts)

    def in_words(self) -> str:
        """``a = 1 and b = 2``."""
        return " and ".join(_enclosed(part) for part in self.parts) or "anything"

    def faults(self, attributes: Attributes) -> list[UnmetCondition]:
        """Why these attributes do not meet it; nothing if they do."""
        return [failure for part in self.parts for failure in part.faults(attributes)]


@dataclass(frozen=True)
class AnyOf:
    """At least one of these."""

    pointer: str
    parts: tuple[Predicate, ...]

    def met_by(self, attributes: Attributes) -> bool:
        """Whether these attributes meet it."""
        return any(part.met_by(attributes) for part in self.parts)

    def in_words(self) -> str:
        """``a = 1 or b = 2``."""
        return " or ".join(_enclosed(part) for part in self.parts)

    def faults(self, attributes: Attributes) -> list[UnmetCondition]:
        """Why these attributes do not meet it; nothing if they do."""
        if self.met_by(attributes):
            return []
        reasons = dict.fromkeys(
            failure.reason for part in self.parts for failure in part.faults(attributes)
        )
        return [UnmetCondition(self.pointer, self.in_words(), ", ".join(reasons))]


@dataclass(frozen=True)
class Not:
    """The opposite."""

    pointer: str
    part: Predicate

    def met_by(self, attributes: Attributes) -> bool:
        """Whether these attributes meet it."""
        return not self.part.met_by(attributes)

    def in_words(self) -> str:
        """``not (a = 1 and b = 2)``."""
        return f"not ({self.part.in_words()})"

    def faults(self, attributes: Attributes) -> list[UnmetCondition]:
        """Why these attributes do not meet it; nothing if they do."""
        if self.met_by(attributes):
            return []
        return [UnmetCondition(self.pointer, self.in_words(), f"it has {self.part.in_words()}")]


Predicate = Condition | AllOf | AnyOf | Not


@dataclass(frozen=True)
class UnmetCondition:
    """A condition that is not met: where it stands, what it says, and what is there instead."""

    pointer: str
    condition: str
    reason: str


def parse(document: object, pointer: str = "") -> Predicate:
    """A document as a predicate; ``pointer`` is where it stands in a larger one.

    :raises InvalidDocument: with a pointer to each fault.
    """
    faults: list[FieldFault] = []
    found = _every(document, pointer, 0, faults)
    if not faults and sum(1 for _ in conditions(found)) > SIZE_MAX:
        faults.append(FieldFault(pointer, f"has more than {SIZE_MAX} conditions"))
    if faults:
        raise InvalidDocument(faults)
    return found


def conditions(predicate: Predicate) -> Iterator[Condition]:
    """Everything it compares."""
    match predicate:
        case Condition():
            yield predicate
        case AllOf(parts) | AnyOf(_, parts):
            for part in parts:
                yield from conditions(part)
        case Not(_, part):
            yield from conditions(part)


def _every(document: object, pointer: str, depth: int, faults: list[FieldFault]) -> Predicate:
    if not isinstance(document, Mapping):
        faults.append(FieldFault(pointer, 'must be an object, such as {"country": "DE"}'))
        return AllOf(())
    if depth > DEPTH_MAX:
        faults.append(FieldFault(pointer, f"nests deeper than {DEPTH_MAX}"))
        return AllOf(())
    parts: list[Predicate] = []
    for name, wanted in document.items():
        at = f"{pointer}/{_escaped(name)}"
        if name == "not":
            parts.append(Not(at, _every(wanted, at, depth + 1, faults)))
        elif name in WORDS:
            parts.append(_several(name, wanted, at, depth, faults))
        elif NAME.fullmatch(name) is None:
            said = "is no name of an attribute: small letters, digits, '_', '.', ':' and '-'"
            faults.append(FieldFault(at, said))
        else:
            parts += _compared(name, wanted, at, faults)
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _several(
    word: str, document: object, pointer: str, depth: int, faults: list[FieldFault]
) -> Predicate:
    if not isinstance(document, list) or not document:
        faults.append(FieldFault(pointer, "must be a list of predicates, with one at least"))
        return AllOf(())
    parts = tuple(
        _every(each, f"{pointer}/{index}", depth + 1, faults) for index, each in enumerate(document)
    )
    return AnyOf(pointer, parts) if word == "any" else AllOf(parts)


def _compared(name: str, wanted: object, pointer: str, faults: list[FieldFault]) -> list[Condition]:
    if isinstance(wanted, list):
        wanted = {"in": wanted}
        single = True
    else:
        single = not isinstance(wanted, Mapping)
        wanted = {"=": wanted} if single else wanted
    assert isinstance(wanted, Mapping)  # noqa: S101 - for the type checker: it was just made one
    if not wanted:
        faults.append(FieldFault(pointer, f"must compare with one of {' '.join(_OPERATORS)}"))
    made = []
    for word, operand in wanted.items():
        at = pointer if single else f"{pointer}/{_escaped(word)}"
        fault = _fault(word, operand)
        if fault is not None:
            faults.append(FieldFault(at, fault))
        made.append(
            Condition(at, name, word, tuple(operand) if word == "in" and not fault else operand)
        )
    return made


def _fault(word: str, operand: object) -> str | None:
    if word not in _OPERATORS:
        return f"is no comparison; there are: {' '.join(_OPERATORS)}"
    if word == "exists":
        return None if isinstance(operand, bool) else "must be true or false"
    if word == "in":
        if isinstance(operand, list) and operand and all(_is_value(each) for each in operand):
            return None
        return "must be a list of texts, numbers, true or false, with one at least"
    if word in _ORDERS:
        return None if _is_number(operand) else "must be a number: only numbers have an order"
    return None if _is_value(operand) else "must be a text, a number, true or false"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_value(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


def equal_values(one: Value, other: Value) -> bool:
    """Equal, and of one kind: 1 is 1.0 but neither ``true`` nor ``"1"``."""
    kinds = (bool, str)
    return one == other and all(isinstance(one, k) is isinstance(other, k) for k in kinds)


def _enclosed(predicate: Predicate) -> str:
    words = predicate.in_words()
    many = isinstance(predicate, AllOf | AnyOf) and len(predicate.parts) != 1
    return f"({words})" if many else words


def _escaped(name: object) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


def format_value(value: Value) -> str:
    """A value as JSON has it: ``"DE"``, ``1000``, ``true``."""
    return json.dumps(value, ensure_ascii=False)


def explain_no_match(
    predicate: Predicate, nodes: Mapping[str, Attributes], pointer: str = ""
) -> FieldFault:
    """Why none of these nodes (by name) meets a predicate: what most fail, and what is there.

    To be asked only if none does.
    """
    failed: dict[tuple[str, str], list[str]] = {}
    for name, attributes in nodes.items():
        for failure in predicate.faults(attributes):
            failed.setdefault((failure.pointer, failure.condition), []).append(name)
    count = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'} known here"
    if not failed:
        return FieldFault(pointer, f"matches nobody: {count}")
    (where, condition), names = max(failed.items(), key=lambda item: len(item[1]))
    told = f"matches none of the {count}: {condition} fails {_listed(names)}"
    compared = dict.fromkeys(c.attribute for c in conditions(predicate))
    there = "; ".join(_known(each, nodes) for each in compared)
    return FieldFault(where, f"{told}; {there}" if there else told)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(sorted(names)[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _known(attribute: str, nodes: Mapping[str, Attributes]) -> str:
    """Which values of an attribute there are."""
    values = sorted({format_value(each[attribute]) for each in nodes.values() if attribute in each})
    if values:
        return f"{attribute} is {_listed(values)}"
    names = dict.fromkeys(name for each in nodes.values() for name in each)
    return f"no node has {attribute}, they have {_listed(list(names)) or 'no attributes'}"
