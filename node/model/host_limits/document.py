"""The file of the owner's limits: TOML that is read into :class:`HostLimits`.

A file looks like this::

    version = 1

    [who.lab]
    keys = ["ed25519:…"]                 # nodes by their keys, as parley node list shows them
    match = { country = "DE" }           # or by their cards, with the predicates of pools

    [who.strangers]
    others = true                        # all known nodes that no other group names

    [[rule]]
    name = "throughput of the lab"
    who = ["lab"]
    tests = ["throughput"]
    spec = { duration = { "<=" = "PT60S" } }
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from node.model.classes import SchedulingClass
from node.model.contexts import ContextWord
from node.model.errors import FieldFault, InvalidDocument
from node.model.host_limits.rules import HostLimits, Rule, Who
from node.model.predicates import Predicate, conditions, parse
from node.model.wire.fields import FROM_OUTSIDE, Count, Document, Duration, Name
from node.model.wire.nodes import Identity
from node.model.wire.tasks import PRIORITY_MAX
from node.model.wire.validation import faults_of

FILE_BYTES_MAX: Final = 1_000_000
"""Maximum length of a file of limits."""

DEFAULT: Final = """\
# What other nodes may have of a host whose owner has written no limits.
version = 1

[who.others]
others = true

[[rule]]
name = "other nodes"
who = ["others"]
"""
"""The limits that apply where there is no file."""

RuleName = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,100}$")]
_LISTED = Field(None, min_length=1, max_length=1000)


class WhoDocument(Document):
    """A group of nodes, ``[who.NAME]``."""

    keys: tuple[Identity, ...] = Field((), max_length=1000)
    match: dict[str, Any] | None = None
    others: bool = Field(default=False, strict=True)


class MostDocument(Document):
    """The amounts that one node may have under a rule, ``[rule.most]``."""

    tasks: Count | None = None


class RuleDocument(Document):
    """A rule, ``[[rule]]``."""

    name: RuleName
    who: tuple[Name, ...] = Field(min_length=1, max_length=100)
    tests: tuple[Name, ...] | None = _LISTED
    classes: tuple[SchedulingClass, ...] | None = Field(
        None, alias="class", min_length=1, max_length=4
    )
    spec: dict[str, Any] | None = None
    contexts: tuple[ContextWord, ...] | None = _LISTED
    duration_max: Annotated[Duration, Field(gt=0)] | None = None
    priority_max: int | None = Field(None, ge=-PRIORITY_MAX - 1, lt=PRIORITY_MAX, strict=True)
    most: MostDocument = MostDocument()


class LimitsDocument(Document):
    """The whole file."""

    version: Annotated[int, Field(ge=1, le=1, strict=True)]
    who: dict[Name, WhoDocument] = Field(default_factory=dict, max_length=1000)
    rule: tuple[RuleDocument, ...] = Field((), max_length=1000)


def parse_limits(text: str) -> HostLimits:
    """Read a file of limits.

    :raises InvalidDocument: it is not TOML, or a field is wrong; with a pointer to each fault.
    """
    if len(text) > FILE_BYTES_MAX:
        raise InvalidDocument([FieldFault("", f"is longer than {FILE_BYTES_MAX} characters")])
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidDocument([FieldFault("", f"is not TOML: {error}")]) from None
    try:
        document = LimitsDocument.model_validate(raw, context=FROM_OUTSIDE)
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, LimitsDocument)) from None
    faults = list(_faults(document))
    predicates = _Predicates(faults)
    limits = HostLimits(
        {name: _who(name, each, predicates) for name, each in document.who.items()},
        tuple(_rule(number, each, predicates) for number, each in enumerate(document.rule)),
    )
    if faults:
        raise InvalidDocument(faults)
    return limits


def _faults(document: LimitsDocument) -> Iterator[FieldFault]:
    """Yield what is wrong with the parts together."""
    for name, group in document.who.items():
        if not group.keys and group.match is None and not group.others:
            yield FieldFault(f"/who/{name}", "names nobody; give keys, match, or others = true")
        if group.others and (group.keys or group.match is not None):
            fault = "are the nodes that no group names; leave keys and match out, or others"
            yield FieldFault(f"/who/{name}/others", fault)
    names: dict[str, int] = {}
    for number, rule in enumerate(document.rule):
        if rule.name in names:
            fault = f"is also the name of rule {names[rule.name] + 1}; give each its own"
            yield FieldFault(f"/rule/{number}/name", fault)
        names.setdefault(rule.name, number)
        for place, who in enumerate(rule.who):
            if who not in document.who:
                known = ", ".join(sorted(document.who)) or "none"
                fault = f"there is no [who.{who}]; there are: {known}"
                yield FieldFault(f"/rule/{number}/who/{place}", fault)


class _Predicates:
    """Reads predicates, and collects their faults."""

    def __init__(self, faults: list[FieldFault]) -> None:
        self._faults = faults

    def read(self, document: Mapping[str, Any] | None, pointer: str) -> Predicate | None:
        """Return the predicate; None if there is none, or it has faults."""
        if document is None:
            return None
        try:
            return parse(document, pointer)
        except InvalidDocument as error:
            self._faults += error.faults
            return None


def _who(name: str, document: WhoDocument, predicates: _Predicates) -> Who:
    match = predicates.read(document.match, f"/who/{name}/match")
    return Who(name, frozenset(document.keys), match, document.others)


def _rule(number: int, document: RuleDocument, predicates: _Predicates) -> Rule:
    return Rule(
        name=document.name,
        who=document.who,
        tests=_set(document.tests),
        classes=_set(document.classes),
        spec=predicates.read(document.spec, f"/rule/{number}/spec"),
        contexts=_set(document.contexts),
        duration_max=document.duration_max,
        priority_max=document.priority_max,
        tasks_max=document.most.tasks,
    )


def _set(words: tuple[Any, ...] | None) -> frozenset[Any] | None:
    return None if words is None else frozenset(words)


def known_limits(text: str, fields_of: Callable[[str], frozenset[str] | None]) -> HostLimits:
    """Read a file of limits, of which all words are known to this program.

    ``fields_of(test)`` returns the fields of the spec of a test, or None if there is no such test.
    A condition on a field that no test of its rule has would never be met.

    :raises InvalidDocument: it has a fault, or names a test or a field that there is not.
    """
    limits = parse_limits(text)
    faults = [
        fault
        for number, rule in enumerate(limits.rules)
        for fault in _unknown_words(f"/rule/{number}", rule, fields_of)
    ]
    if faults:
        raise InvalidDocument(faults)
    return limits


def _unknown_words(
    pointer: str, rule: Rule, fields_of: Callable[[str], frozenset[str] | None]
) -> Iterator[FieldFault]:
    if rule.tests is None:
        return
    fields = {test: fields_of(test) for test in sorted(rule.tests)}
    for test, known in fields.items():
        if known is None:
            yield FieldFault(f"{pointer}/tests", f"there is no test {test!r}; see parley test list")
    every = frozenset[str]().union(*(known or () for known in fields.values()))
    compared = () if rule.spec is None else conditions(rule.spec)
    for field in dict.fromkeys(condition.attribute for condition in compared):
        if field not in every:
            fault = f"no spec of its tests has this field; they have {', '.join(sorted(every))}"
            yield FieldFault(f"{pointer}/spec/{field}", fault)
