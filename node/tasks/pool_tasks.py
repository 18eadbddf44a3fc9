"""Checks of pool tasks at admission: the pool exists, and has enough suitable nodes.

A pool task names no nodes. For each chosen node there is an ordinary task with the same test, and
the node's name is filled into its spec. This module fills it in, and refuses requests that cannot
be met. The lead chooses the nodes later (``lead/pool/episodes.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.execution.catalog import Capabilities
from node.model import predicates
from node.model.errors import Conflict, FieldFault, InvalidDocument
from node.model.predicates import Attributes
from node.model.similar import first_names, suggestion
from node.model.terms import NodeRequirements, seats_possible
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import Schedule, ScheduleDocument, TaskDocument, TestChoice
from node.peers.directory import Directory
from node.plugins import registry
from node.plugins.contracts import Test
from node.store import pools, seats, tasks
from node.store.database import Connection, Database
from node.store.pools import StoredPool
from node.store.seats import TermProgress
from node.store.tasks import StoredTask

_FIELDS = ("source", "participants")
_SHOWN = 8


@dataclass(frozen=True)
class PoolTaskRequest:
    """A checked request: the pool, and the names of the nodes that could have a seat now."""

    pool: StoredPool
    request: SeatRequest
    able: tuple[str, ...]


class PoolTaskChecker:
    """Checks what tasks ask of pools."""

    def __init__(
        self, database: Database, directory: Directory, capabilities: Capabilities
    ) -> None:
        """``directory`` has the known nodes and the attributes of each."""
        self._database = database
        self._directory = directory
        self._capabilities = capabilities

    async def find_nodes(self, document: TaskDocument, request: SeatRequest) -> PoolTaskRequest:
        """Return the nodes that could have a seat of this task.

        :raises InvalidDocument: there is no such pool, or too few of its nodes meet the request.
        """
        async with self._database.connection() as connection:
            there = await pools.find_all(connection)
        pool = next((each for each in there if each.name == request.pool), None)
        if pool is None:
            raise InvalidDocument(
                [FieldFault("/participants/pool", unknown_pool(request.pool, there))]
            )
        test = document.test
        wanted = self.requirements(test.type, test.spec, document.tools, request, pool.match)
        known = {node.name: node.facts for node in self._directory.nodes_of_parley}
        members = {n: each for n, each in known.items() if wanted.pool_match.met_by(each)}
        able = {n: each for n, each in members.items() if wanted.why_not(n, each) is None}
        fault = _too_few_fault(request, wanted, members, able) or _unknown_attribute_fault(
            request, members
        )
        if fault is not None:
            raise InvalidDocument([fault])
        return PoolTaskRequest(pool, request, tuple(able))

    def requirements(
        self,
        test: str,
        spec: dict[str, Any],
        tools: Collection[str],
        request: SeatRequest,
        pool_match: Mapping[str, Any],
    ) -> NodeRequirements:
        """Return the requirements on a node that is to have a seat of a task with this test.

        :raises InvalidDocument: the match is not a predicate, or a field of the test is wrong.
        """
        known = self._capabilities.test(test)
        parsed = self._capabilities.spec(known, spec)
        hosts = known.hosts(parsed)
        named = [self._directory.find(host) for host in hosts]
        able = [tool.name for tool in registry.tools_for(test) if tool.can(parsed) is None]
        return NodeRequirements(
            request.pool,
            predicates.parse(pool_match),
            predicates.parse(request.match, "/participants/match"),
            frozenset(node.name for node in named if node is not None),
            tuple(tool for tool in able if not tools or tool in tools),
        )

    def needs(self, test: str, spec: dict[str, Any]) -> Mapping[str, int | None]:
        """Return the counted resources that a run of this test uses; None is all that a node has.

        :raises InvalidDocument: there is no such test (any more), or a field of it is wrong.
        """
        known = self._capabilities.test(test)
        return known.needs(self._capabilities.spec(known, spec))

    def expected_bytes(self, test: str, spec: dict[str, Any], mbps: int | None) -> int | None:
        """Return the bytes that a run of this test moves on each participant; None if unknown.

        :raises InvalidDocument: there is no such test (any more), or a field of it is wrong.
        """
        known = self._capabilities.test(test)
        return known.expected_bytes(self._capabilities.spec(known, spec), mbps)

    async def keep(
        self, connection: Connection, task: StoredTask, sought: PoolTaskRequest, slot: int, now: int
    ) -> None:
        """Make a task that was just stored a pool task; its terms begin with this slot.

        :raises Conflict: the pool was removed in the meantime.
        """
        await tasks.stop_planning(connection, [task.id])
        on = TermProgress(slot, now, task.terms.schedule.max_runs)
        await self.change(connection, task.id, sought.request, on)

    async def change(
        self, connection: Connection, task: UUID, request: SeatRequest, on: TermProgress | None
    ) -> None:
        """Store what a pool task requests, and with ``on`` the slot at which its terms continue.

        :raises Conflict: the pool was removed in the meantime.
        """
        body = request.model_dump(mode="json")
        if not await seats.keep(connection, task, request.pool, body, on):
            raise Conflict(f"the pool {request.pool} was removed a moment ago; name another one")

    def fill_in(
        self, document: TaskDocument, request: SeatRequest, names: Sequence[str]
    ) -> TaskDocument:
        """Return the document of the ordinary task in which these nodes have seats.

        :raises InvalidDocument: the test has no field for them, or the field has a value already.
        """
        test = self._capabilities.test(document.test.type)
        word = _field_of(test, request)
        given = document.test.spec.get(word)
        if isinstance(test.spec_model.model_fields[word].get_default(), tuple):
            value: Any = [*(given or ()), *names]
        elif given is not None:
            fault = (
                f"says {given}, and the task asks for nodes of pool {request.pool}: leave it out"
            )
            raise InvalidDocument([FieldFault(f"/test/spec/{word}", fault)])
        elif request.together and request.k > 1:
            fault = f"is not possible: {word} of {test.name} names one node; leave it out"
            raise InvalidDocument([FieldFault("/participants/together", fault)])
        else:
            value = names[0]
        spec = {**document.test.spec, word: value}
        choice = TestChoice(type=document.test.type, spec=spec)
        return document.model_copy(update={"test": choice, "participants": ()})

    def document_for(
        self, whole: StoredTask, request: SeatRequest, names: Sequence[str], schedule: Schedule
    ) -> TaskDocument:
        """Return the document of the ordinary task in which these nodes have seats of a pool task.

        :raises InvalidDocument: the test has no field for them.
        """
        document = TaskDocument(
            test=TestChoice(type=whole.terms.test, spec=whole.terms.spec),
            tools=whole.terms.tools,
            schedule=ScheduleDocument.of(schedule),
            priority=whole.terms.priority,
            campaign=whole.terms.campaign,
            takes=whole.terms.takes,
            reference=whole.terms.reference,
        )
        return self.fill_in(document, request, names)


def _field_of(test: Test, request: SeatRequest) -> str:
    fields = test.spec_model.model_fields
    if request.field is not None and request.field not in fields:
        fault = f"{test.name} has no field {request.field}; it has {', '.join(fields)}"
        raise InvalidDocument([FieldFault("/participants/field", fault)])
    word = request.field or next((name for name in _FIELDS if name in fields), None)
    if word is None:
        fault = f"say which field of {test.name} names the node; it has {', '.join(fields)}"
        raise InvalidDocument([FieldFault("/participants/field", fault)])
    return word


def unknown_pool(name: str, there: Sequence[StoredPool]) -> str:
    """Describe that there is no pool of this name, and suggest existing ones."""
    names = [pool.name for pool in there]
    if not names:
        return f"there is no pool {name}, and no other one; make it: parley pool add {name}"
    return f"there is no pool {name}; {suggestion(name, names)}"


def _too_few_fault(
    request: SeatRequest,
    wanted: NodeRequirements,
    members: Mapping[str, Attributes],
    able: Mapping[str, Attributes],
) -> FieldFault | None:
    pool, k, least = request.pool, request.k, request.min_k or request.k
    if k > len(members):
        fault = f"is more than pool {pool} has: {_node_count_text(members)}"
        fewer = f"ask for {len(members)} at most, or " if members else ""
        return FieldFault("/participants/k", f"{fault}; {fewer}widen the pool")
    meeting = [name for name, each in members.items() if wanted.match.met_by(each)]
    if members and not meeting:
        return predicates.explain_no_match(wanted.match, members, "/participants/match")
    word = "min_k" if request.min_k else "k"
    if len(able) < least:
        others = {n: wanted.why_not(n, each) for n, each in members.items() if n not in able}
        why = ", ".join(f"{name}: {reason}" for name, reason in list(others.items())[:_SHOWN])
        fault = (
            f"is more than pool {pool} can give: {len(able)} of {_node_count_text(members)} ({why})"
        )
        fewer = f"ask for {len(able)} at most" if able else "ask for others, or widen the pool"
        return FieldFault(f"/participants/{word}", f"{fault}; {fewer}")
    possible = seats_possible(able.values(), request.spread)
    if possible < least:
        fault = (
            f"is more than can be spread like that: {possible} of {_node_count_text(able)} at most"
        )
        return FieldFault(f"/participants/{word}", f"{fault}; ask for fewer, or spread less")
    return None


def _unknown_attribute_fault(
    request: SeatRequest, members: Mapping[str, Attributes]
) -> FieldFault | None:
    """Return a fault for an attribute that no member has: misspelt, it would have no effect."""
    there = {word for each in members.values() for word in each}
    for place, words in (("spread", request.spread), ("prefer", request.prefer)):
        for word in words:
            if word not in there:
                fault = (
                    f"no node of pool {request.pool} has it; they have {first_names(sorted(there))}"
                )
                return FieldFault(f"/participants/{place}/{word}", fault)
    return None


def _node_count_text(found: Collection[str]) -> str:
    return f"{len(found)} node{'' if len(found) == 1 else 's'}"
