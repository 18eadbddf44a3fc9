"""A template of psConfig becomes a mesh file of ours, with a report of what it does not have. Pure.

Each task of the template is expanded to its pairs, with variables replaced, and each pair is
translated by the language of its test; pairs that have everything in common but their ends become
one entry. What cannot be translated is never silently lost: members without a counterpart are left
out and reported, one by one, until the rest can be translated; a pair that needs an unknown node,
or measures what no tool of ours does, is left out as a whole. The report names the place in the
template by its JSON pointer, each place once. Programs of jq are asked through a function, since
running them is not pure.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

from node.model import contexts, times
from node.model.errors import FieldFault, InvalidDocument
from node.model.loopback import is_loopback
from node.model.urls import split_url
from node.model.wire.tasks import PRIORITY_MAX
from node.pscheduler import archives
from node.pscheduler.psconfig.addresses import Address, AddressBook
from node.pscheduler.psconfig.nodes import NodeFinder, Place
from node.pscheduler.psconfig.pairings import Pairing, pairings
from node.pscheduler.psconfig.references import reference_of, shared_references
from node.pscheduler.psconfig.schedules import UnusableSchedule, schedule_of
from node.pscheduler.psconfig.shapes import Names, Pair, Shapes, slug, unused_name
from node.pscheduler.psconfig.template import (
    MEMBERS,
    Document,
    Omission,
    Report,
    pointer,
    tasks_text,
)
from node.pscheduler.psconfig.variables import JqProgram, Scope, VariableError, expand
from node.pscheduler.refusals import Refusal
from node.pscheduler.tests.contract import ParleyTest
from node.pscheduler.tests.language import Language, fitted_to_interval

_ENDS = ("source", "dest", "participants")
_WHAT_IS_MEASURED = frozenset([
    "schema", "source", "source-node", "dest", "dest-node", "host", "host-node", "url", "query",
    "record", "nameserver", "headers", "parse", "ip-version", "duration", "count", "packet-count",
    "packet-interval", "udp", "bandwidth", "protocol", "probe-type", "flip", "reverse", "loopback",
    "single-ended", "reverse-connections",
])  # fmt: skip
"""Members of specs without which something else would be measured."""
_UNKNOWN = {
    "_meta": "serves variables alone: a mesh file has no descriptions",
    "lead-bind-address": "is not used: a node has its own address towards others, PARLEY_ADDRESS",
    "match-filters": "is no member: it is called match-filter",
}
_FEW = 3
"""Up to so many entries with the same unknown member are named one by one."""
TASKS_MAX = 50_000
"""Maximum number of pairs of a template."""
_NO_SUBTASKS = "subtasks have no counterpart; an entry may follow another one: after"
_AT_LEAD = (
    "differs: it is on the host that leads the tasks, which is the one where this file is applied; "
    "a node that follows the template leads its own"
)
_CONTEXTS = {"linuxnns": ("namespace", "namespace")}
"""By context of pScheduler: ours, and the member of its data that names it."""


@dataclass(frozen=True)
class Fleet:
    """The nodes that are known here, the tools by the tests they measure, and languages of tests.

    ``own`` is the name of the node whose part of the template is wanted, None for all of it, and
    ``own_addresses`` are its addresses. Of the nodes, ``foreign`` ones run pScheduler.
    """

    finder: NodeFinder
    nodes: Collection[str]
    tools: Mapping[str, Collection[str]]
    languages: Mapping[str, Language]
    known_ips: Mapping[str, Sequence[str]] = field(default_factory=dict)
    own: str | None = None
    own_addresses: Sequence[str] | None = None
    foreign: Collection[str] = ()


@dataclass(frozen=True)
class Translated:
    """A mesh file, as its JSON, and what the template has that it has not."""

    mesh: Document
    omissions: tuple[Omission, ...]
    tasks: int
    """Number of tasks that it has."""
    left_out: int = 0
    """Number of tasks of the template that it has not."""
    strangers: tuple[str, ...] = ()
    """Hosts that take part in the template, and are no nodes known here, sorted."""

    @property
    def effect_lines(self) -> tuple[str, ...]:
        """Return how many tasks are left out, and how many remain; nothing if none is."""
        if not self.left_out:
            return ()
        verb = "is" if self.left_out == 1 else "are"
        return (f"{tasks_text(self.left_out)} {verb} left out; {self.tasks:,} apply",)


@dataclass(frozen=True)
class _Wanted:
    """One task of ours: everything but its ends is the ``terms`` that others may share."""

    source: str
    dest: str
    test: str
    spec: Mapping[str, Any]
    archives: tuple[str, ...]
    contexts: Mapping[str, str]
    schedule: Mapping[str, Any] | None
    tools: tuple[str, ...]
    participants: tuple[str, ...]
    reference: Document

    @property
    def terms(self) -> str:
        """Return everything but the ends as a canonical text, by which tasks share an entry."""
        content = [self.test, self.spec, self.archives, self.schedule, self.tools]
        return json.dumps(content, sort_keys=True)


class _Left(Exception):
    """A task that is left out: because of a place in the template, and why."""

    def __init__(self, pointer: str, why: str) -> None:
        super().__init__(why)
        self.pointer = pointer
        self.why = why


def translate(
    template: Document, name: str, fleet: Fleet, jq: JqProgram, *, now: int
) -> Translated:
    """Return the mesh file of a template whose includes are in it already.

    :raises InvalidDocument: it gives too many tasks.
    """
    return _Translation(template, name, fleet, jq, now).mesh()


class _Translation:
    """One template while it is translated."""

    def __init__(
        self, template: Document, name: str, fleet: Fleet, jq: JqProgram, now: int
    ) -> None:
        self._template = template
        self._now = now
        self._name = name
        self._fleet = fleet
        self._jq = jq
        self._report = Report()
        self._book = AddressBook(template, self._report, jq, fleet.own_addresses, fleet.known_ips)
        self._groups = Names(set(fleet.nodes))
        self._shapes = Shapes(fleet.nodes, self._groups)
        self._tests, self._schedules, self._archives = Names(), Names(), Names()
        self._labels: set[str] = set()
        self._measures: list[Document] = []
        self._strangers: set[str] = set()
        self._count = 0

    def mesh(self) -> Translated:
        """Translate all tasks."""
        for name, task in self._template["tasks"].items():
            if task.get("disabled") is not True:
                self._translate_task(name, task)
        self._report_unknown_members()
        mesh = {
            "name": slug(self._name, "mesh"),
            "groups": self._groups.contents,
            "tests": self._tests.contents,
            "schedules": self._schedules.contents,
            "archives": self._archives.contents,
            "measure": self._measures,
        }
        kept = {key: value for key, value in mesh.items() if value}
        report, strangers = self._report, tuple(sorted(self._strangers))
        return Translated(kept, report.omissions, self._count, report.tasks_left_out, strangers)

    def _report_unknown_members(self) -> None:
        """Report members that a mesh file has no place for."""
        if "_meta" in self._template:
            self._report.add("/_meta", _UNKNOWN["_meta"])
        for section, members in MEMBERS.items():
            found: dict[str, list[str]] = {}
            for name, entry in self._template[section].items():
                for member in sorted(set(entry) - set(members)):
                    if section != "subtasks" and not member.startswith("#"):
                        found.setdefault(member, []).append(name)
            for member, names in found.items():
                self._report_unknown_member(section, member, names)
        for name in self._template["subtasks"]:
            self._report.add(pointer("subtasks", name), _NO_SUBTASKS)

    def _report_unknown_member(self, section: str, member: str, names: Sequence[str]) -> None:
        why = _UNKNOWN.get(member, "has no counterpart")
        if len(names) > _FEW:
            self._report.add(pointer(section), f"{member} of {len(names)} entries {why}")
            return
        for name in names:
            self._report.add(pointer(section, name, member), why)

    # One task of the template

    def _translate_task(self, name: str, task: Document) -> None:
        try:
            test, language = self._test_of(name, task)
            schedule = self._schedule(name, task)
        except _Left as left:
            count = sum(1 for _ in self._own_pairings(name, task))
            self._report.add(left.pointer, left.why, count)
            return
        if task.get("subtasks"):
            self._report.add(pointer("tasks", name, "subtasks"), _NO_SUBTASKS)
        room = TASKS_MAX - self._count + 1
        wanted = list(islice(self._wanted_tasks(name, task, test, language, schedule), room))
        if len(wanted) == room:
            fault = f"gives more than {TASKS_MAX:,} tasks; divide the template"
            raise InvalidDocument([FieldFault(pointer("tasks", name), fault)])
        self._add_entries(name, task, wanted)

    def _test_of(self, name: str, task: Document) -> tuple[Document, Language]:
        test = self._template["tests"].get(task.get("test"))
        if test is None:
            raise _Left(pointer("tasks", name, "test"), f"there is no test {task.get('test')}")
        language = self._fleet.languages.get(str(test.get("type")))
        if language is None:
            at = pointer("tests", task["test"], "type")
            raise _Left(at, f"there is no test {test.get('type')} here")
        return test, language

    def _own_pairings(self, name: str, task: Document) -> Iterator[Pairing]:
        """Yield what a task of the template is for, of the part that is wanted."""
        for pairing in pairings(name, task, self._book):
            leader = self._place(pairing.scheduled_by)
            if self._fleet.own in (None, leader and leader.node):
                yield pairing

    def _wanted_tasks(
        self,
        name: str,
        task: Document,
        test: Document,
        language: Language,
        schedule: Document | None,
    ) -> Iterator[_Wanted]:
        for pairing in self._own_pairings(name, task):
            try:
                yield self._wanted_task(name, task, test, language, schedule, pairing)
            except _Left as left:
                self._report.add(left.pointer, left.why, tasks=1)

    def _wanted_task(
        self,
        name: str,
        task: Document,
        test: Document,
        language: Language,
        schedule: Document | None,
        pairing: Pairing,
    ) -> _Wanted:
        scope = self._scope(task, test, pairing)
        at = pointer("tests", task["test"], "spec")
        spec = self._expand(test.get("spec"), scope, at)
        found = self._translate_test(language, spec, pairing, at)
        if schedule is not None and (repeat := schedule.get("repeat")) is not None:
            found = fitted_to_interval(found, times.parse_duration(repeat))
        contexts = self._contexts(found, pairing)
        ends = self._ends(found, at)
        if "dest" in found.spec and ends[0] == ends[1]:
            why = f"{ends[0]} is at both ends, and no node measures to itself"
            raise _Left(pointer("groups", str(task.get("group"))), why)
        kept = {key: value for key, value in found.spec.items() if key not in _ENDS}
        timing = schedule
        if timing is None and found.repeat is not None:
            runs = {} if found.max_runs is None else {"max_runs": found.max_runs}
            timing = {"repeat": found.repeat, "slip": "PT0S", **runs}
        return _Wanted(
            *ends,
            found.type,
            kept,
            tuple(self._archive_names_of(name, task, pairing, scope)),
            contexts,
            timing,
            self._tools(name, task, found),
            found.participants,
            self._reference(name, task, scope),
        )

    def _reference(self, name: str, task: Document, scope: Scope) -> Document:
        """Return what results of a task are chosen by; results without it are better than none."""
        try:
            return reference_of(task, expand(task.get("reference", {}), scope))
        except VariableError as error:
            why = f"{error}; its results have no reference"
            self._report.add(pointer("tasks", name, "reference"), why)
            return {}

    def _scope(self, task: Document, test: Document, pairing: Pairing) -> Scope:
        book, addresses = self._book, pairing.addresses
        names = self._archive_names(task, pairing)
        facts = {
            "addresses": [address.facts for address in addresses],
            "archives": [self._template["archives"][each] for each in names],
            "contexts": [
                self._template["contexts"].get(each)
                for address in addresses
                for each in address.contexts
            ],
            "hosts": [book.host(address.host) for address in addresses],
            "task": task,
            "test": test,
        }
        if (schedule := self._template["schedules"].get(task.get("schedule"))) is not None:
            facts["schedule"] = schedule
        return Scope(addresses, pairing.scheduled_by, pairing.flip, facts, self._jq)

    def _expand(self, value: Any, scope: Scope, at: str) -> Any:
        try:
            return expand(value, scope)
        except VariableError as error:
            raise _Left(at, str(error)) from None

    def _translate_test(
        self, language: Language, spec: Any, pairing: Pairing, at: str
    ) -> ParleyTest:
        if not isinstance(spec, dict):
            raise _Left(at, "is no object")
        try:
            language.check(spec)
            named = language.participants(spec).names
            asked = [name or pairing.scheduled_by.address for name in named]
            hosts = [self._node_of_host(host, pairing).node for host in asked]
            found, relaxed = self._translate_relaxed(language, spec, hosts, at)
        except Refusal as refusal:
            raise _Left(at, refusal.text) from None
        try:
            names = self._names_of_nodes(found, pairing)
        except _Left as left:
            if (target := _test_of_target(language, relaxed, hosts)) is None:
                raise
            self._report.add(left.pointer, f"{left}; until then it is asked by OWAMP")
            found, names = target, self._names_of_nodes(target, pairing)
        else:
            if any(name in self._fleet.foreign for name in [*names.values()][1:]):
                found = _test_of_target(language, relaxed, hosts) or found
                names = self._names_of_nodes(found, pairing)
        for note in found.notes:
            self._report.add(at, f"makes no difference: {note}")
        return replace(
            found,
            participants=tuple(names.values()),
            addresses={names[name]: host for name, host in found.addresses.items()},
            spec={
                member: names.get(value, value) if member in _ENDS[:2] else value
                for member, value in found.spec.items()
            },
        )

    def _names_of_nodes(self, found: ParleyTest, pairing: Pairing) -> dict[str, str]:
        """Return the nodes that take part, by what the test calls them.

        :raises _Left: one is not known here.
        """
        return {name: self._node_of_host(name, pairing).node for name in found.participants}

    def _translate_relaxed(
        self, language: Language, spec: Document, hosts: Sequence[str], at: str
    ) -> tuple[ParleyTest, Document]:
        """Return our test for a spec, and what is left of it without members that matter less.

        :raises Refusal: what it measures has no counterpart.
        """
        left = dict(spec)
        for member in sorted(set(spec) - _WHAT_IS_MEASURED):
            try:
                return language.to_parley(left, hosts), left
            except Refusal as refusal:
                without = {name: value for name, value in left.items() if name != member}
                if _refusal_of(language, without, hosts) != refusal.text:
                    self._report.add(f"{at}/{member}", f"{refusal.text}; it is left out")
                    left = without
        return language.to_parley(left, hosts), left

    def _node_of_host(self, host: str, pairing: Pairing) -> Place:
        """Return the node of a host that takes part.

        :raises _Left: none is known here.
        """
        place = self._fleet.finder.find(host)
        if place is None:
            for address in pairing.addresses:
                if host in (address.address, address.pscheduler):
                    place = self._place(address)
        if place is None:
            at = next((a.pointer for a in pairing.addresses if a.address == host), "/addresses")
            ways = f"https://{host}:8642, or https://{host}/pscheduler if it runs that"
            self._strangers.add(host)
            raise _Left(at, f"{host} is no node that is known here: parley node add {ways}")
        return place

    def _place(self, address: Address) -> Place | None:
        """Return the node of an address: its own, or that of another address of its host."""
        place = self._fleet.finder.find(address.parent)
        if place is None and address.host is not None:
            return self._places_of_hosts.get(address.host)
        return place

    @cached_property
    def _places_of_hosts(self) -> Mapping[str, Place]:
        """Return the nodes of hosts of the template, by the addresses that are known of each."""
        found: dict[str, Place] = {}
        for entry in self._template["addresses"].values():
            host, place = entry.get("host"), self._fleet.finder.find(str(entry.get("address")))
            if host is not None and place is not None:
                found.setdefault(host, Place(place.node))
        return found

    def _contexts(self, found: ParleyTest, pairing: Pairing) -> dict[str, str]:
        """Return where participants measure, if not as usual.

        An address by which a node is not known is taken for one of its host, which knows better:
        it refuses the task otherwise.

        :raises _Left: there is no such place.
        """
        found_at: dict[str, str] = {}
        for number, node in enumerate(found.participants):
            address = self._address_of(node, pairing, number)
            given = [self._context(name, address) for name in address.contexts]
            words = [word for word in given if word]
            wanted = found.addresses.get(node, address.address)
            place = self._fleet.finder.find(wanted)
            if not words and place is not None and place.node == node and place.context:
                words = [place.context]
            if len(words) > 1:
                raise _Left(address.pointer, "several contexts at once have no counterpart")
            if not words and place is None:
                words = [self._own_address(node, wanted, address)]
            if not words and place is not None and place.node != node:
                why = f"{node} cannot measure from {wanted}: that is {place.node}"
                raise _Left(address.pointer, why)
            found_at |= dict.fromkeys([node] if words else [], "".join(words))
        return found_at

    def _address_of(self, node: str, pairing: Pairing, number: int) -> Address:
        """Return the address of a participant by its number: its own, where one is a node's."""
        for address in pairing.addresses:
            place = self._place(address)
            if place is not None and place.node == node:
                return address
        return pairing.addresses[min(number, len(pairing.addresses) - 1)]

    def _own_address(self, node: str, wanted: str, address: Address) -> str:
        """Return the context of an address of a node's host."""
        for text in (wanted, *self._fleet.known_ips.get(wanted.lower(), ())):
            with contextlib.suppress(ValueError):
                return str(contexts.parse(f"address:{text.strip('[]')}"))
        why = f"{node} is to measure from {wanted}, whose address is not known here"
        raise _Left(address.pointer, why)

    def _context(self, name: str, address: Address) -> str | None:
        entry = self._template["contexts"].get(name)
        at = pointer("contexts", name)
        if entry is None:
            raise _Left(address.pointer, f"there is no context {name}")
        kind, data = str(entry.get("context")), entry.get("data")
        if kind == "changenothing":
            return None
        if kind not in _CONTEXTS or not isinstance(data, dict):
            raise _Left(at, f"the context {kind} has no counterpart")
        ours, member = _CONTEXTS[kind]
        try:
            return str(contexts.parse(f"{ours}:{data.get(member)}"))
        except ValueError as error:
            raise _Left(f"{at}/data", str(error)) from None

    def _ends(self, found: ParleyTest, at: str) -> Pair:
        """Return source and dest; they are the same where there is no far end."""
        named = found.participants
        if len(named) > 2:  # noqa: PLR2004 - a mesh has pairs
            raise _Left(at, f"a mesh measures in pairs, and this has {len(named)} participants")
        source, dest = found.spec.get("source") or named[0], found.spec.get("dest")
        if dest is None:
            return source, named[-1]
        if "responder" in found.spec:  # whoever it is, it takes no part
            return source, dest
        place = self._fleet.finder.find(dest)
        known = place is not None and (place.context is None or dest in self._fleet.nodes)
        return source, place.node if known and place is not None else dest

    # Archives, tools, schedules

    def _archive_names(self, task: Document, pairing: Pairing) -> list[str]:
        host = self._book.host(pairing.scheduled_by.host)
        names = [*task.get("archives", ()), *host.get("archives", ())]
        return [name for name in dict.fromkeys(names) if name in self._template["archives"]]

    def _archive_names_of(
        self, label: str, task: Document, pairing: Pairing, scope: Scope
    ) -> Iterator[str]:
        for name in task.get("archives", ()):
            if name not in self._template["archives"]:
                why = f"there is no archive {name}: its results do not go there"
                self._report.add(pointer("tasks", label, "archives"), why)
        known: list[Document] = []
        for name in self._archive_names(task, pairing):
            at = pointer("archives", name)
            entry = _without_meta(self._template["archives"][name])
            if entry in known:  # under another name
                continue
            known.append(entry)
            given = self._expand(entry, scope, at)
            # Archives of a template may have all members, whatever their schema says.
            try:
                translated = archives.to_parley({**given, "schema": archives.SCHEMA_MAX})
            except Refusal as refusal:
                self._report.add(at, f"{refusal.text} Results do not go there")
                continue
            for note in translated.notes:
                self._report.add(at, f"differs: {note}")
            if self._fleet.own is None and _is_at_lead(translated.choice.spec):
                self._report.add(at, _AT_LEAD)
            choice = translated.choice.model_dump(mode="json", exclude_defaults=True)
            choice["spec"] = {k: v for k, v in choice.get("spec", {}).items() if v is not None}
            yield self._archives.of(slug(name, "archive"), choice, json.dumps(choice))

    def _tools(self, name: str, task: Document, found: ParleyTest) -> tuple[str, ...]:
        able = [tool for tool, tests in self._fleet.tools.items() if found.type in tests]
        wanted = [str(tool) for tool in task.get("tools", ())]
        at = pointer("tasks", name, "tools")
        kept = [tool for tool in wanted if tool in able]
        if lacking := [tool for tool in wanted if tool not in able]:
            instead = "" if kept else "; any tool may measure instead"
            words = ", ".join(lacking)
            self._report.add(at, f"there is no tool {words} for {found.type} here{instead}")
        if found.tools:
            return tuple(tool for tool in found.tools if not kept or tool in kept) or found.tools
        return tuple(kept)

    def _schedule(self, name: str, task: Document) -> Document | None:
        wanted = task.get("schedule")
        if wanted is None:
            return None
        entry = self._template["schedules"].get(wanted)
        if entry is None:
            raise _Left(pointer("tasks", name, "schedule"), f"there is no schedule {wanted}")
        try:
            schedule = schedule_of(entry, self._now)
        except UnusableSchedule as refused:
            steps = [refused.member] if refused.member else []
            raise _Left(pointer("schedules", wanted, *steps), str(refused)) from None
        if "cron" in schedule and "repeat" in entry:
            why = f"differs: {entry['repeat']} is the cron {schedule['cron']}, in UTC"
            self._report.add(pointer("schedules", wanted, "repeat"), why)
        return schedule

    # Entries

    def _add_entries(self, name: str, task: Document, wanted: Sequence[_Wanted]) -> None:
        by_terms: dict[str, list[list[_Wanted]]] = {}
        for each in wanted:
            _group(each, by_terms.setdefault(each.terms, []))
        entries = [entry for several in by_terms.values() for entry in several]
        if same := len(wanted) - sum(len(_distinct_pairs(entry)) for entry in entries):
            why = f"{same} tasks are the same as others here: their addresses are of the same nodes"
            self._report.add(pointer("tasks", name), why)
        self._count += len(wanted) - same
        label = slug(name, "task")
        # The names of tasks between nodes stay the same, whoever becomes one later.
        asked = [entry[0].spec.get("responder") for entry in entries]
        for entry, responder in zip(entries, asked, strict=True):
            sources = {each.source for each in entry}
            parts = [slug(responder)] if responder else []
            parts += [slug(*sources)] if asked.count(responder) > 1 and len(sources) == 1 else []
            self._add_entry(self._unique_label("-".join([label, *parts])), task, entry)

    def _unique_label(self, wanted: str) -> str:
        label = unused_name(wanted, self._labels)
        self._labels.add(label)
        return label

    def _add_entry(self, label: str, task: Document, entry: Sequence[_Wanted]) -> None:
        first = entry[0]
        pairs = _distinct_pairs(entry)
        test = {"type": first.test, "spec": dict(first.spec), "tools": list(first.tools)}
        used = {key: value for key, value in test.items() if value}
        group = str(task.get("group"))
        measure: Document = {
            "name": label,
            **self._shapes.described_pairs(pairs, slug(group, "group"), self._sides(group, pairs)),
            "test": self._tests.of(slug(task["test"], "test"), used, json.dumps(used)),
        }
        if first.schedule is not None:
            wanted = slug(str(task.get("schedule") or "continuous"), "schedule")
            content = json.dumps(first.schedule)
            measure["schedule"] = self._schedules.of(wanted, first.schedule, content)
        if abs(priority := task.get("priority", 0)) > PRIORITY_MAX:
            self._report.add(pointer("tasks", label, "priority"), f"is beyond {PRIORITY_MAX}")
        elif priority:
            measure["priority"] = priority
        by_pair = {(each.source, each.dest): each.reference for each in entry}
        if references := shared_references(by_pair):
            measure["references"] = references
        if first.archives:
            measure["archives"] = list(first.archives)
        if places := {node: word for each in entry for node, word in each.contexts.items()}:
            measure["contexts"] = places
        self._measures.append(measure)

    def _sides(self, group: str, pairs: Sequence[Pair]) -> dict[str, list[str]]:
        """Return the names on both sides of a disjoint group, of those that have pairs."""
        entry = self._template["groups"].get(group, {})
        present = {name for pair in pairs for name in pair}
        sides = {}
        for side in ("a", "b"):
            names = []
            for selector in entry.get(f"{side}-addresses", ()):
                for chosen in self._book.selected_entries(selector, pointer("groups", group)):
                    address = self._book.address(chosen, entry.get("default-address-label"), "")
                    place = None if address is None else self._fleet.finder.find(address.parent)
                    name = place.node if place else (address.address if address else "")
                    names += [name] if name in present else []
            sides[side] = list(dict.fromkeys(names))
        return sides


def _distinct_pairs(entry: Sequence[_Wanted]) -> list[Pair]:
    return list(dict.fromkeys((each.source, each.dest) for each in entry))


def _without_meta(archive: Mapping[str, Any]) -> Document:
    """Return an archive without descriptions, which those of psConfig's examples have in data."""
    kept = {name: value for name, value in archive.items() if name != "_meta"}
    if isinstance(data := kept.get("data"), dict):
        kept["data"] = {name: value for name, value in data.items() if name != "_meta"}
    return kept


def _is_at_lead(spec: Mapping[str, Any]) -> bool:
    """Return whether an archive is on the host that delivers."""
    parts = split_url(str(spec.get("url", "")))
    host = spec.get("host") or (parts and parts.hostname)
    return host is not None and is_loopback(str(host))


def _refusal_of(language: Language, spec: Document, hosts: Sequence[str]) -> str | None:
    """Return why a spec has no counterpart here; None if it has one."""
    try:
        language.to_parley(spec, hosts)
    except Refusal as refusal:
        return refusal.text
    return None


def _test_of_target(language: Language, spec: Document, hosts: Sequence[str]) -> ParleyTest | None:
    """Return the test of a far end that takes no part as a node; None if it has to."""
    try:
        return language.test_of_target(spec, hosts)
    except Refusal:
        return None


def _group(each: _Wanted, entries: list[list[_Wanted]]) -> None:
    """Add a task to the first entry whose nodes measure from the same places."""
    for entry in entries:
        known = {node: word for other in entry for node, word in other.contexts.items()}
        ends = {name for other in entry for name in other.participants}
        same = all(
            known.get(node) == word or node not in ends for node, word in each.contexts.items()
        )
        others = set(each.participants) - set(each.contexts)
        if same and not others & set(known):
            entry.append(each)
            return
    entries.append([each])
