"""Templates of psConfig as commands read them: fetched with what they include, and translated."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import aiohttp
import click
import orjson

from node.cli.failures import unreadable
from node.client.causes import cause_of
from node.execution import jq
from node.model.contexts import offered
from node.model.errors import FieldFault, InvalidDocument, PeerUnreachable
from node.pscheduler.psconfig import template as templates
from node.pscheduler.psconfig.nodes import KnownNode, NodeFinder
from node.pscheduler.psconfig.template import Omission, Report
from node.pscheduler.psconfig.translation import Fleet, Translated, translate
from node.pscheduler.psconfig.variables import VariableError
from node.pscheduler.tests.registry import LANGUAGES

if TYPE_CHECKING:
    from node.cli.session import Session
    from node.model.wire.nodes import Node

SIZE_MAX = 16_000_000
_FETCHED_WITHIN_S = 30.0
_RESOLVED_WITHIN_S = 5.0
_AT_ONCE = 16
_PASSES = 6
"""Programs of jq in filters decide which others are asked: so often the template is gone over."""

Ips = Mapping[str, Sequence[str]]


def is_url(source: str) -> bool:
    """Return whether a source is fetched over HTTP; others are files."""
    return source.startswith(("http://", "https://"))


async def fetch(source: str, *, insecure: bool) -> str:
    """Return the text of a file or URL; ``insecure``: whatever certificate the server has.

    :raises PeerUnreachable: the URL is away.
    :raises click.BadParameter: the file cannot be read.
    :raises InvalidDocument: it is too long, or no text.
    """
    if not is_url(source):
        try:
            return await asyncio.to_thread(Path(source).read_text, "utf-8")
        except (OSError, UnicodeDecodeError) as error:
            msg = unreadable(source, error)
            raise click.BadParameter(msg, param_hint="SOURCE") from error
    timeout = aiohttp.ClientTimeout(total=_FETCHED_WITHIN_S)
    connector = aiohttp.TCPConnector(ssl=not insecure)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
            session.get(source, headers={"Accept": "*/*"}) as answer,
        ):
            if not answer.ok:
                raise PeerUnreachable(f"{source} answers {answer.status} {answer.reason}")
            octets = await answer.content.read(SIZE_MAX + 1)
            while len(octets) <= SIZE_MAX and (more := await answer.content.read(SIZE_MAX)):
                octets += more
    except (aiohttp.ClientError, OSError, TimeoutError, ssl.SSLError) as error:
        raise PeerUnreachable(f"{source} cannot be fetched: {_reason(error)}") from None
    if len(octets) > SIZE_MAX:
        raise InvalidDocument([FieldFault("", f"is longer than {SIZE_MAX:,} bytes")])
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise InvalidDocument([FieldFault("", f"is no text in UTF-8: {error}")]) from None


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted; --insecure accepts any, as psConfig does"
    return cause_of(error)


async def with_includes(
    text: str, source: str, *, insecure: bool
) -> tuple[dict[str, Any], tuple[Omission, ...]]:
    """Return a template with the entries of all templates that it includes, and what is told.

    :raises InvalidDocument: one of them is broken.
    :raises PeerUnreachable: one of them is away.
    """
    main = templates.parse(text)
    included: dict[str, Any] = {}
    waiting = [urljoin(source, url) for url in templates.includes_of(main)]
    while waiting:
        url = waiting.pop(0)
        if url in included or url == source:
            continue
        if len(included) >= templates.INCLUDES_MAX:
            fault = f"includes more than {templates.INCLUDES_MAX} templates"
            raise InvalidDocument([FieldFault("/includes", fault)])
        other = templates.parse(await fetch(url.removeprefix("file://"), insecure=insecure))
        included[url] = other
        waiting += [urljoin(url, each) for each in templates.includes_of(other)]
    report = Report()
    return templates.with_includes(main, included, report), report.omissions


async def translated(
    session: Session,
    text: str,
    source: str,
    *,
    name: str | None = None,
    named: Mapping[str, str] | None = None,
    insecure: bool = False,
    part: bool = False,
) -> Translated:
    """Return the mesh file of a template for the nodes that are known here.

    ``named`` are nodes by addresses of the template; ``part``: only what this node schedules.

    :raises InvalidDocument: the template is broken.
    :raises PeerUnreachable: a template that it includes is away.
    """
    template, told = await with_includes(text, source, insecure=insecure)
    nodes, tools = await asyncio.gather(session.client.nodes(), session.client.tools())
    ips = await resolved([*_hosts(template), *(node.address for node in nodes.items)])
    own = next((node for node in nodes.items if node.is_self), None)
    fleet = Fleet(
        NodeFinder(map(_known, nodes.items), named or {}, ips),
        {node.name for node in nodes.items},
        {tool.name: tool.tests for tool in tools.items},
        LANGUAGES,
        ips,
        own.name if part and own is not None else None,
        _addresses(own, ips) if part and own is not None else None,
    )
    mesh = await _with_jq(template, name or name_of(template, source), fleet)
    return Translated(mesh.mesh, (*told, *mesh.omissions), mesh.tasks)


def name_of(template: Mapping[str, Any], source: str) -> str:
    """Return a name for the mesh: what the template calls itself, or that of its file."""
    meta = template.get("_meta")
    shown = meta.get("display-name") if isinstance(meta, dict) else None
    return str(shown) if shown else Path(source.partition("?")[0]).stem or "psconfig"


async def _with_jq(template: dict[str, Any], name: str, fleet: Fleet) -> Translated:
    """Translate a template; programs of jq are collected, run at once, and it is gone over again.

    :raises InvalidDocument: each answer leads to other programs.
    """
    programs = _Programs()
    for _ in range(_PASSES):
        mesh = translate(template, name, fleet, programs.output)
        if not programs.asked:
            return mesh
        await programs.run()
    raise InvalidDocument([FieldFault("", "its programs of jq lead to ever other ones")])


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
        """Run what was asked, one process for each program."""
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
    """Return all addresses of a template."""
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


async def resolved(hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the addresses of names, of those that are known within a few seconds."""
    found: dict[str, tuple[str, ...]] = {}
    places = asyncio.Semaphore(_AT_ONCE)

    async def look(host: str) -> None:
        async with places:
            try:
                entries = await asyncio.get_running_loop().getaddrinfo(
                    host, None, type=socket.SOCK_STREAM
                )
            except OSError:
                return
        found[host] = tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))

    tasks = [asyncio.create_task(look(host.lower())) for host in dict.fromkeys(hosts)]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=_RESOLVED_WITHIN_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found


def _known(node: Node) -> KnownNode:
    return KnownNode(node.name, node.address, node.url, offered(node.attributes))


def _addresses(node: Node, ips: Ips) -> list[str]:
    """Return the addresses of a node, as a template may name it."""
    contexts = offered(node.attributes).values()
    return list(dict.fromkeys([node.address, *ips.get(node.address.lower(), ()), *contexts]))
