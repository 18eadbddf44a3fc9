"""Templates of psConfig as commands read them: fetched with what they include, and translated."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from node.cli.published import Documents, resolved_reference
from node.execution import jq, netlink
from node.model.contexts import ContextKind, offered_contexts
from node.model.errors import FieldFault, InvalidDocument
from node.model.nodekinds import NodeKind
from node.pscheduler.psconfig import template as templates
from node.pscheduler.psconfig.nodes import KnownNode, NodeFinder
from node.pscheduler.psconfig.template import Omission, Report
from node.pscheduler.psconfig.translation import Fleet, Translated, translate
from node.pscheduler.psconfig.variables import VariableError
from node.pscheduler.tests.registry import LANGUAGES

if TYPE_CHECKING:
    from node.cli.session import Session
    from node.model.wire.nodes import Node

_RESOLVED_WITHIN_S = 5.0
_AT_ONCE = 16
WORK_S = 60.0
"""Processor time, and time for programs of jq, that a template may take to be translated: classes
that name each other, and meshes of thousands, take ever longer while nothing else goes on."""
_PASSES = 6
"""Programs of jq in filters decide which others are asked: so often the template is gone over."""

Ips = Mapping[str, Sequence[str]]


async def with_includes(
    text: str, source: str, read: Documents
) -> tuple[dict[str, Any], tuple[Omission, ...]]:
    """Return a template with the entries of all templates that it includes, and what is told.

    ``read`` is what ``source`` was read with.

    :raises InvalidDocument: one of them is broken.
    :raises PeerUnreachable: one of them is away.
    """
    main = templates.parse(text)
    included: dict[str, Any] = {}
    waiting = [(resolved_reference(source, url), source) for url in templates.includes_of(main)]
    while waiting:
        url, parent = waiting.pop(0)
        if url in included or url == source:
            continue
        if len(included) >= templates.INCLUDES_MAX:
            fault = f"includes more than {templates.INCLUDES_MAX} templates"
            raise InvalidDocument([FieldFault("/includes", fault)])
        other = templates.parse(await read.read_included(url, parent))
        included[url] = other
        waiting += [(resolved_reference(url, each), url) for each in templates.includes_of(other)]
    report = Report()
    return templates.with_includes(main, included, report), report.omissions


async def translate_template(
    session: Session,
    text: str,
    source: str,
    read: Documents,
    *,
    name: str | None = None,
    named: Mapping[str, str] | None = None,
    part: bool = False,
) -> Translated:
    """Return the mesh file of a template for the nodes that are known here.

    ``read`` is what it was read with.
    ``named`` are nodes by addresses of the template; ``part``: only what this node schedules.

    :raises InvalidDocument: the template is broken.
    :raises PeerUnreachable: a template that it includes is away.
    """
    template, told = await with_includes(text, source, read)
    nodes, tools = await asyncio.gather(session.client.nodes(), session.client.tools())
    ips = await resolve_addresses([*_hosts(template), *(node.address for node in nodes.items)])
    own = next((node for node in nodes.items if node.is_self), None)
    known = [_known_node(node, is_here=part and node is own) for node in nodes.items]
    fleet = Fleet(
        NodeFinder(known, named or {}, ips),
        {node.name for node in nodes.items},
        {tool.name: tool.tests for tool in tools.items},
        LANGUAGES,
        ips,
        own.name if part and own is not None else None,
        _addresses(own, ips) if part and own is not None else None,
        {node.name for node in nodes.items if node.kind is NodeKind.PSCHEDULER},
    )
    now = session.clock.now()
    mesh = await translate_with_jq(template, name or name_of(template, source), fleet, now)
    return replace(mesh, omissions=(*told, *mesh.omissions))


def name_of(template: Mapping[str, Any], source: str) -> str:
    """Return a name for the mesh: what the template calls itself, or that of its file."""
    meta = template.get("_meta")
    shown = meta.get("display-name") if isinstance(meta, dict) else None
    return str(shown) if shown else Path(source.partition("?")[0]).stem or "psconfig"


async def translate_with_jq(
    template: dict[str, Any], name: str, fleet: Fleet, now: int
) -> Translated:
    """Translate a template in rounds: jq programs met in one are run together before the next.

    :raises InvalidDocument: each answer leads to other programs, or it takes too much work.
    """
    programs = _Programs()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WORK_S * 2):
            for _ in range(_PASSES):
                with _limited_work(WORK_S):
                    mesh = translate(template, name, fleet, programs.output, now=now)
                if not programs.asked:
                    return mesh
                await programs.run()
        raise InvalidDocument([FieldFault("", "its programs of jq lead to ever other ones")])
    raise InvalidDocument([FieldFault("", "its programs of jq take too long")])


@contextlib.contextmanager
def _limited_work(seconds: float) -> Iterator[None]:
    """End what is done meanwhile, without awaiting anything, after this much processor time.

    :raises InvalidDocument: it took longer.
    """

    def end(*_: object) -> None:
        fault = f"takes more than {seconds:g} s of work to read; divide the template"
        raise InvalidDocument([FieldFault("", fault)])

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@dataclass
class _Programs:
    """Programs of jq by the documents that they were asked about, and their outputs."""

    asked: dict[str, dict[str, None]] = field(default_factory=dict)
    _answers: dict[tuple[str, str], Any] = field(default_factory=dict)

    def output(self, program: str, document: Any) -> Any:
        """Return the output of a program; None if it has not been run yet, but will be.

        :raises VariableError: the program failed.
        """
        text = json.dumps(document, sort_keys=True)
        if (program, text) not in self._answers:
            self.asked.setdefault(program, {})[text] = None
            return None
        answer = self._answers[program, text]
        if isinstance(answer, VariableError):
            raise answer
        return answer

    async def run(self) -> None:
        """Run all programs that were asked for, one jq process for each."""
        for program, texts in self.asked.items():
            results = await jq.transform(program, [text.encode() for text in texts], None)
            for text, result in zip(texts, results, strict=True):
                value: Any = result.document
                if result.error is not None:
                    value = VariableError(f"jq {program}: {result.error}")
                elif result.encoded is not None:
                    value = orjson.loads(result.encoded)
                self._answers[program, text] = value
        self.asked = {}


# Names and addresses


def _hosts(template: Mapping[str, Any]) -> list[str]:
    """Return the addresses of all entries of a template, labels and remote addresses included."""
    hosts: list[str] = []
    waiting: list[Any] = list(template["addresses"].values())
    while waiting:
        entry = waiting.pop()
        if not isinstance(entry, dict):
            continue
        hosts += [str(entry[name]) for name in ("address", "pscheduler-address") if entry.get(name)]
        for inner in ("labels", "remote-addresses"):
            if isinstance(entry.get(inner), dict):
                waiting += entry[inner].values()
    return hosts


async def resolve_addresses(hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the IP addresses of each name that is resolved within a few seconds."""
    found: dict[str, tuple[str, ...]] = {}
    places = asyncio.Semaphore(_AT_ONCE)

    async def resolve(host: str) -> None:
        async with places:
            try:
                entries = await asyncio.get_running_loop().getaddrinfo(
                    host, None, type=socket.SOCK_STREAM
                )
            except OSError:
                return
        found[host] = tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))

    tasks = [asyncio.create_task(resolve(host.lower())) for host in dict.fromkeys(hosts)]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=_RESOLVED_WITHIN_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found


def _known_node(node: Node, *, is_here: bool) -> KnownNode:
    """Return a node as templates may mean it; ``is_here``: this host is its own."""
    contexts = offered_contexts(node.attributes)
    if is_here:
        contexts |= own_addresses(contexts)
    return KnownNode(node.name, node.address, node.url, contexts)


def own_addresses(offered: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of this host by context, unless its owner has listed some of them."""
    kind = f"{ContextKind.ADDRESS}:"
    if any(word.startswith(kind) for word in offered):
        return {}
    return {f"{kind}{address}": str(address) for address in netlink.addresses()}


def _addresses(node: Node, ips: Ips) -> list[str]:
    """Return names and IP addresses by which a template may mean the node."""
    offered = offered_contexts(node.attributes)
    contexts = [*offered.values(), *own_addresses(offered).values()]
    return list(dict.fromkeys([node.address, *ips.get(node.address.lower(), ()), *contexts]))
