"""Predicates over node attributes: they define pools, and what a task requires of a pool's nodes.

A predicate is a JSON object; a node meets it if it meets every member of it::

    {"country": "DE"}                    equal
    {"site": ["a", "b"]}                 one of these
    {"cpu_mbps": {">=": 1000, "<": 10000}}
    {"country": {"!=": "DE"}}            present, and different
    {"rack": {"exists": false}}
    {"address": {"in-network": "192.0.2.0/24"}}     or a list of networks
    {"tool:iperf3": true}
    {"not": {…}}, {"all": [{…}, …]}, {"any": [{…}, …]}

Attributes are text, numbers, or true and false; values of different kinds are never equal. Numbers
have an order, and so have texts that are durations (``PT60S``). An attribute that a node does not
have meets only ``{"exists": false}``.
Every node meets the empty predicate.

Everything here is pure: functions take attributes as mappings and return verdicts and sentences.
"""

from __future__ import annotations

import ipaddress
import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from node.model import times
from node.model.errors import FieldFault, InvalidDocument

Value = str | int | float | bool
"""The type of an attribute's value."""

Attributes = Mapping[str, Value]

NAME: Final = re.compile(r"[a-z][a-z0-9_.:-]{0,62}|context:[A-Za-z0-9_.:-]{1,54}", re.ASCII)
"""The syntax of an attribute's name."""

WORDS: Final = frozenset({"not", "all", "any"})
"""Words that cannot be names of attributes."""

DEPTH_MAX: Final = 8
SIZE_MAX: Final = 200
"""Maximum number of conditions in one predicate."""

_SHOWN: Final = 8
_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NETWORK: Final = "in-network"
_OPERATORS: Final = ("=", "!=", *_ORDERS, "in", _NETWORK, "exists")


@dataclass(frozen=True)
class Condition:
    """A comparison of one attribute; ``pointer`` is its place in the document."""

    pointer: str
    attribute: str
    operator: str
    operand: Any

    def met_by(self, attributes: Attributes) -> bool:
        """Return whether these attributes meet the condition."""
        if self.operator == "exists":
            return (self.attribute in attributes) is self.operand
        if self.attribute not in attributes:
            return False
        value = attributes[self.attribute]
        return _COMPARISONS[self.operator](value, self.operand)

    def in_words(self) -> str:
        """Describe the condition: ``cpu_mbps >= 1000``."""
        if self.operator == "exists":
            return f"{self.attribute} {'exists' if self.operand else 'does not exist'}"
        if self.operator in {"in", _NETWORK}:
            return f"{self.attribute} {self.operator} {', '.join(map(format_value, self.operand))}"
        return f"{self.attribute} {self.operator} {format_value(self.operand)}"

    def faults(self, attributes: Attributes) -> list[UnmetCondition]:
        """Return why these attributes do not meet the condition; an empty list if they do."""
        if self.met_by(attributes):
            return []
        if self.attribute not in attributes:
            return [UnmetCondition(self.pointer, self.in_words(), f"it has no {self.attribute}")]
        there = f"its {self.attribute} is {format_value(attributes[self.attribute])}"
        return [UnmetCondition(self.pointer, self.in_words(), there)]


@dataclass(frozen=True)
class AllOf:
    """A conjunction; without parts every node meets it."""

    parts: tuple[Predicate, ...]

    def met_by(self, attributes: Attributes) -> bool:
        """Return whether these attributes meet all parts."""
        return all(part.met_by(attributes) for part in self.parts)

    def in_words(self) -> str:
        """Describe the conjunction: ``a = 1 and b = 2``."""
        return " and ".join(_parenthesised_text(part) for part in self.parts) or "anything"

    def faults(self, attributes: Attributes) -> list[UnmetCondition]:
        """Return the conditions that these attributes do not meet."""
        return [failure for part in self.parts for failure in part.faults(attributes)]


@dataclass(frozen=True)
class AnyOf:
    """A disjunction: at least one part must be met."""

    pointer: str
    parts: tuple[Predicate, ...]

    def met_by(self, attributes: Attributes) -> bool:
        """Return whether these attributes meet at least one part."""
        return any(part.met_by(attributes) for part in self.parts)

    def in_words(self) -> str:
        """Describe the disjunction: ``a = 1 or b = 2``."""
        return " or ".join(_parenthesised_text(part) for part in self.parts)

    def faults(self, attributes: Attributes) -> list[UnmetCondition]:
        """Return why these attributes meet no part; an empty list if they meet one."""
        if self.met_by(attributes):
            return []
        reasons = dict.fromkeys(
            failure.reason for part in self.parts for failure in part.faults(attributes)
        )
        return [UnmetCondition(self.pointer, self.in_words(), ", ".join(reasons))]


@dataclass(frozen=True)
class Not:
    """A negation."""

    pointer: str
    part: Predicate

    def met_by(self, attributes: Attributes) -> bool:
        """Return whether these attributes do not meet the part."""
        return not self.part.met_by(attributes)

    def in_words(self) -> str:
        """Describe the negation: ``not (a = 1 and b = 2)``."""
        return f"not ({self.part.in_words()})"

    def faults(self, attributes: Attributes) -> list[UnmetCondition]:
        """Return why these attributes meet the part; an empty list if they do not."""
        if self.met_by(attributes):
            return []
        return [UnmetCondition(self.pointer, self.in_words(), f"it has {self.part.in_words()}")]


Predicate = Condition | AllOf | AnyOf | Not


@dataclass(frozen=True)
class UnmetCondition:
    """A condition that is not met: its place, its text, and what the node has instead."""

    pointer: str
    condition: str
    reason: str


def parse(document: object, pointer: str = "") -> Predicate:
    """Parse a document into a predicate; ``pointer`` is its place in a larger document.

    :raises InvalidDocument: with a pointer to each fault.
    """
    faults: list[FieldFault] = []
    predicate = _conjunction(document, pointer, 0, faults)
    if not faults and sum(1 for _ in conditions(predicate)) > SIZE_MAX:
        faults.append(FieldFault(pointer, f"has more than {SIZE_MAX} conditions"))
    if faults:
        raise InvalidDocument(faults)
    return predicate


def conditions(predicate: Predicate) -> Iterator[Condition]:
    """Yield all comparisons of a predicate."""
    match predicate:
        case Condition():
            yield predicate
        case AllOf(parts) | AnyOf(_, parts):
            for part in parts:
                yield from conditions(part)
        case Not(_, part):
            yield from conditions(part)


def _conjunction(document: object, pointer: str, depth: int, faults: list[FieldFault]) -> Predicate:
    if not isinstance(document, Mapping):
        faults.append(FieldFault(pointer, 'must be an object, such as {"country": "DE"}'))
        return AllOf(())
    if depth > DEPTH_MAX:
        faults.append(FieldFault(pointer, f"nests deeper than {DEPTH_MAX}"))
        return AllOf(())
    parts: list[Predicate] = []
    for name, value in document.items():
        at = f"{pointer}/{_pointer_part(name)}"
        if name == "not":
            parts.append(Not(at, _conjunction(value, at, depth + 1, faults)))
        elif name in WORDS:
            parts.append(_part_list(name, value, at, depth, faults))
        elif NAME.fullmatch(name) is None:
            fault = "is not a valid attribute name; use small letters, digits, '_', '.', ':', '-'"
            faults.append(FieldFault(at, fault))
        else:
            parts += _comparisons(name, value, at, faults)
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _part_list(
    word: str, document: object, pointer: str, depth: int, faults: list[FieldFault]
) -> Predicate:
    if not isinstance(document, list) or not document:
        faults.append(FieldFault(pointer, "must be a list of at least one predicate"))
        return AllOf(())
    parts = tuple(
        _conjunction(each, f"{pointer}/{index}", depth + 1, faults)
        for index, each in enumerate(document)
    )
    return AnyOf(pointer, parts) if word == "any" else AllOf(parts)


def _comparisons(
    name: str, comparison: object, pointer: str, faults: list[FieldFault]
) -> list[Condition]:
    if isinstance(comparison, list):
        comparison = {"in": comparison}
        single = True
    else:
        single = not isinstance(comparison, Mapping)
        comparison = {"=": comparison} if single else comparison
    assert isinstance(comparison, Mapping)  # noqa: S101 - for the type checker: both branches make one
    if not comparison:
        faults.append(FieldFault(pointer, f"must compare with one of {' '.join(_OPERATORS)}"))
    comparisons = []
    for word, operand in comparison.items():
        at = pointer if single else f"{pointer}/{_pointer_part(word)}"
        fault = _operand_fault(word, operand)
        if fault is not None:
            faults.append(FieldFault(at, fault))
        if fault is None and word in {"in", _NETWORK}:
            operand = tuple(operand) if isinstance(operand, list) else (operand,)  # noqa: PLW2901
        comparisons.append(Condition(at, name, word, operand))
    return comparisons


def _operand_fault(word: str, operand: object) -> str | None:
    if word not in _OPERATORS:
        return f"is not a comparison; use one of: {' '.join(_OPERATORS)}"
    fits, fault = _OPERANDS.get(word, _VALUES)
    return None if fits(operand) else fault


def _is_non_empty_list(operand: object, fits: Callable[[object], bool]) -> bool:
    """Return whether it is a list of at least one fitting value."""
    return isinstance(operand, list) and bool(operand) and all(map(fits, operand))


def _is_in_order(word: str, value: Value, operand: Value) -> bool:
    """Return whether two numbers, or two durations, are in this order."""
    one, other = _order_of(value), _order_of(operand)
    if one is None or other is None or one[0] != other[0]:
        return False
    return _ORDERS[word](one[1], other[1])


def _order_of(value: object) -> tuple[bool, int | float] | None:
    """Return whether a value is a duration, and its place in the order; None if it has none."""
    if isinstance(value, str):
        try:
            return True, times.parse_duration(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return False, value


def _is_network(value: object) -> bool:
    return isinstance(value, str) and _network(value) is not None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def _is_in_network(value: Value, network: str) -> bool:
    try:
        address = ipaddress.ip_address(value) if isinstance(value, str) else None
    except ValueError:
        return False
    within = _network(network)
    return address is not None and within is not None and address in within


def _is_value(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


def equal_values(one: Value, other: Value) -> bool:
    """Return whether values are equal and of one kind: 1 is 1.0, but not ``true`` or ``"1"``."""
    kinds = (bool, str)
    return one == other and all(isinstance(one, k) is isinstance(other, k) for k in kinds)


def _parenthesised_text(predicate: Predicate) -> str:
    words = predicate.in_words()
    many = isinstance(predicate, AllOf | AnyOf) and len(predicate.parts) != 1
    return f"({words})" if many else words


def _pointer_part(name: object) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


def format_value(value: Value) -> str:
    """Return a value as JSON: ``"DE"``, ``1000``, ``true``."""
    return json.dumps(value, ensure_ascii=False)


def explain_no_match(
    predicate: Predicate, nodes: Mapping[str, Attributes], pointer: str = ""
) -> FieldFault:
    """Explain why none of these nodes (by name) meets a predicate.

    The fault names the condition that most nodes fail, and the values that exist. The caller must
    have checked that no node meets the predicate.
    """
    nodes_by_condition: dict[tuple[str, str], list[str]] = {}
    for name, attributes in nodes.items():
        for failure in predicate.faults(attributes):
            key = (failure.pointer, failure.condition)
            nodes_by_condition.setdefault(key, []).append(name)
    count = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'} known here"
    if not nodes_by_condition:
        return FieldFault(pointer, f"matches no node: {count}")
    (where, condition), names = max(nodes_by_condition.items(), key=lambda item: len(item[1]))
    reason = f"matches none of the {count}: {condition} fails {_joined_names(names)}"
    compared = dict.fromkeys(c.attribute for c in conditions(predicate))
    there = "; ".join(_known_values_text(each, nodes) for each in compared)
    return FieldFault(where, f"{reason}; {there}" if there else reason)


def _joined_names(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(sorted(names)[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _known_values_text(attribute: str, nodes: Mapping[str, Attributes]) -> str:
    """Describe which values of an attribute exist."""
    values = sorted({format_value(each[attribute]) for each in nodes.values() if attribute in each})
    if values:
        return f"{attribute} is {_joined_names(values)}"
    names = dict.fromkeys(name for each in nodes.values() for name in each)
    return f"no node has {attribute}, they have {_joined_names(list(names)) or 'no attributes'}"


_COMPARISONS: Final[Mapping[str, Callable[[Value, Any], bool]]] = {
    "=": equal_values,
    "!=": lambda value, operand: not equal_values(value, operand),
    "in": lambda value, operand: any(equal_values(value, each) for each in operand),
    _NETWORK: lambda value, operand: any(_is_in_network(value, each) for each in operand),
    **{word: partial(_is_in_order, word) for word in _ORDERS},
}
_VALUES: Final[tuple[Callable[[object], bool], str]] = (
    _is_value,
    "must be a text, a number, true or false",
)
_OPERANDS: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "exists": (lambda operand: isinstance(operand, bool), "must be true or false"),
    "in": (
        lambda operand: _is_non_empty_list(operand, _is_value),
        "must be a list of at least one text, number, true or false",
    ),
    _NETWORK: (
        lambda operand: _is_network(operand) or _is_non_empty_list(operand, _is_network),
        "must be a network, such as 192.0.2.0/24 or 2001:db8::/32, or a list of networks",
    ),
    **dict.fromkeys(
        _ORDERS,
        (
            lambda operand: _order_of(operand) is not None,
            "must be a number, or a duration such as PT60S: only these have an order",
        ),
    ),
}
"""By comparison, what its operand must be, and the fault if it is something else."""
