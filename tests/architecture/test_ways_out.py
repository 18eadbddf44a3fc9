"""Every way out of the program is in one table, with who names the other end and what judges it.

A way out is a call by which something is sent to a host, or its name is looked up: a socket, a
client session, a look-up, a client of a store, or a program that gets a host. The documentation has
the same table. A new one needs a row here and there, and so somebody who has thought about it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from node.model.permissions import PERMISSIONS, Access
from node.model.ways_out import WAYS, Asker, Reach, Role
from tests.architecture.sources import REPOSITORY, nodes, parsed

PAGE = REPOSITORY / "docs/reference/ways-out.md"
NAMES = re.compile(
    r"""
    socket\.(socket|create_connection|fromfd|getaddrinfo|getfqdn|gethostby\w+|getnameinfo)
    | asyncio\.(\w+\.)?(open_connection|open_unix_connection|create_subprocess_\w+)
    | os\.(system|popen|exec\w+|spawn\w+|posix_spawnp?)
    | aiohttp\.(\w+\.)*(ClientSession|request|ThreadedResolver|AsyncResolver|DefaultResolver)
    | asyncpg\.(\w+\.)?(connect|create_pool|Pool|Connection)
    | http\.client\.HTTPS?Connection
    | logging\.handlers\.\w+
    | node\.execution\.process\.(start|finish)
    """,
    re.VERBOSE,
)
"""Names whose use is a way out, as they are called where they are defined."""
METHODS = frozenset(
    {
        "create_connection", "create_datagram_endpoint", "create_unix_connection", "getaddrinfo",
        "getnameinfo", "sock_connect", "sock_sendto", "subprocess_exec", "subprocess_shell",
    }
)  # fmt: skip
MODULES = re.compile(
    r"""
    aio_pika | aiokafka | aioboto\w+ | boto\w+ | dns\.(async)?(query|resolver) | ftplib | grpc
    | httplib2 | httpx | imaplib | nntplib | logging\.handlers
    | multiprocessing\.(connection|managers)
    | opentelemetry\.exporter | paho | paramiko | poplib | psycopg\d? | pty | pycurl | requests
    | smtplib | socketserver | subprocess | telnetlib | urllib\.request | urllib3 | webbrowser
    | websockets? | xmlrpc\.client
    """,
    re.VERBOSE,
)
"""Modules whose import alone is a way out, with all in them."""
LEADING = frozenset({"aiohttp", "asyncio", "asyncpg", "os", "socket"})
"""Modules in which a name that is looked up at run time may be a way out."""
PROGRAMS = "node/plugins/tools/"
"""The tools and their own programs: what they reach is in the part that the launcher gives them."""


class Way(NamedTuple):
    """A way out: in which role, on whose word, and the function that judges it.

    ``judge`` is a module and a name in it; None where nobody but the owner names the other end, or
    where it is on this host.
    """

    role: str
    asker: str
    judge: str | None = None


TARGETS = "node/execution/targets.py:checked_part"
WAYS_OUT: dict[str, Way] = {
    PROGRAMS: Way("target, participant", "lead, user, owner", TARGETS),
    "node/execution/targets.py": Way("name", "lead, user", "node/model/ways_out.py:refusal"),
    "node/runtime/opt_outs.py": Way("name server", "owner"),
    "node/runtime/resolver.py": Way("name server", "owner"),
    "node/execution/ways_out.py": Way(
        "name, peer", "publisher, node", "node/model/ways_out.py:refusal"
    ),
    "node/operation/pair.py": Way("peer", "node", "node/execution/targets.py:node_refusal"),
    "node/execution/path_mtu.py": Way(
        "peer, target", "node, user", "node/execution/targets.py:node_refusal"
    ),
    "node/execution/port_probes.py": Way("peer", "node", "node/execution/targets.py:node_refusal"),
    "node/plugins/transport/": Way("archive, webhook", "owner", "node/model/ways_out.py:WAYS"),
    "node/plugins/archivers/": Way("archive", "owner", "node/model/ways_out.py:WAYS"),
    "node/store/results/": Way("archive", "owner", "node/model/ways_out.py:WAYS"),
    "node/access/oidc.py": Way("issuer", "owner, publisher", "node/model/ways_out.py:url_refusal"),
    "node/cli/services.py": Way("peer", "owner, node", "node/execution/targets.py:moved_refusal"),
    "node/client/exchanges.py": Way("node's API, peer", "owner"),
    "node/cli/published.py": Way(
        "document", "owner, publisher", "node/model/ways_out.py:url_refusal"
    ),
    "node/cli/templates.py": Way("name", "owner, publisher"),
    "node/store/database.py": Way("database", "owner"),
    "node/store/migrating.py": Way("database", "owner"),
    "lead/simulation/driver.py": Way("database", "owner"),
    "node/execution/launcher.py": Way("target, participant", "lead, user, owner", TARGETS),
    "node/execution/transforming.py": Way("this host", "owner"),
    "node/execution/versions.py": Way("this host", "owner"),
    "node/postgres/": Way("database", "owner"),
    "node/cli/lab/": Way("this host", "owner"),
    "node/execution/contexts.py": Way("this host", "owner"),
    "node/execution/netlink.py": Way("this host", "owner"),
    "node/execution/releaser.py": Way("this host", "owner"),
    "node/execution/tool_runner.py": Way("this host", "owner"),
    "node/execution/tool_runner_program.py": Way("this host", "owner"),
    "node/execution/trial.py": Way("this host", "owner"),
    "node/execution/process.py": Way("this host", "owner"),
    "node/cli/open.py": Way("node's API", "owner"),
}
"""By file or folder, its way out."""


def _dotted(node: ast.AST, meant: Mapping[str, str]) -> str:
    """Return a name with its dots, as it is called where it is defined; empty for what is none."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([meant.get(node.id, node.id), *reversed(parts)])


def _imported(each: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield what an import calls things, and what they are called where they are defined."""
    if isinstance(each, ast.Import):
        for alias in each.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name, alias.name)
    elif isinstance(each, ast.ImportFrom) and each.module:
        for alias in each.names:
            yield alias.asname or alias.name, f"{each.module}.{alias.name}"


def _is_leading_out(module: str) -> bool:
    """Return whether a module, or one around it, is a way out."""
    parts = module.split(".")
    return any(MODULES.fullmatch(".".join(parts[:end])) for end in range(1, len(parts) + 1))


def _used(each: ast.AST) -> Iterator[ast.AST]:
    """Yield what is called, handed on, or given another name; an annotation is none of it."""
    if isinstance(each, ast.Call):
        yield from (each.func, *each.args, *(keyword.value for keyword in each.keywords))
    elif isinstance(each, ast.Assign | ast.Return) and each.value is not None:
        yield each.value


def _is_looked_up(each: ast.AST, meant: Mapping[str, str]) -> bool:
    """Return whether a name of a module is looked up at run time."""
    match each:
        case ast.Call(func=ast.Name(id="getattr"), args=[module, *_]):
            return _dotted(module, meant) in LEADING
        case ast.Call(func=ast.Name(id="__import__")):
            return True
        case ast.Call(args=[ast.Constant(value=str(name)), *_], func=called):
            looked = _dotted(called, meant) == "importlib.import_module"
            return looked and (_is_leading_out(name) or name in LEADING)
        case _:
            return False


def _ways_out(every: Sequence[ast.AST]) -> list[int]:
    """Return the lines of the ways out in a module."""
    imported = [(each, pair) for each in every for pair in _imported(each)]
    meant = {name: full for _, (name, full) in imported if "." not in name}
    lines = [each.lineno for each, (_, full) in imported if _is_leading_out(full)]  # type: ignore[attr-defined]
    for each in every:
        names = [_dotted(used, meant) for used in _used(each)]
        called = each.func if isinstance(each, ast.Call) else None
        if (
            any(NAMES.fullmatch(name) for name in names)
            or (isinstance(called, ast.Attribute) and called.attr in METHODS)
            or _is_looked_up(each, meant)
        ):
            lines.append(each.lineno)  # type: ignore[attr-defined]
    return lines


def _found() -> dict[str, list[int]]:
    """Return the lines of the ways out, by file."""
    found: dict[str, list[int]] = {}
    for path, tree in parsed("node", "lead"):
        if lines := _ways_out(nodes(tree)):
            found[str(path)] = lines
    return found


def _way(path: str) -> str | None:
    """Return the row of a file: its own, or that of its folder."""
    folders = [key for key in WAYS_OUT if key.endswith("/") and path.startswith(key)]
    return path if path in WAYS_OUT else next(iter(folders), None)


def test_every_way_out_is_in_the_table() -> None:
    """No socket, session, look-up, or client of a store is anywhere but where the table says."""
    unknown = {path: lines for path, lines in _found().items() if _way(path) is None}
    assert unknown == {}, f"give each a row in WAYS_OUT and in {PAGE.name}, and a judge"
    assert {_way(path) for path in _found()} == set(WAYS_OUT), "rows without a way out"


@pytest.mark.parametrize("source", [
    "socket.socket(socket.AF_INET, socket.SOCK_RAW)",
    "from socket import socket as plain\nplain()",
    "import socket as plain\nplain.create_connection((host, 25))",
    "partial(socket.create_connection, (host, 25))",
    "connect = asyncio.open_connection",
    "asyncio.streams.open_connection(host, 25)",
    "from asyncio import open_connection\nopen_connection(host, 25)",
    "loop.create_datagram_endpoint(Protocol)",
    "loop.sock_sendto(plain, b'', (host, 25))",
    "loop.subprocess_exec(Protocol, 'ping', host)",
    "aiohttp.ClientSession()",
    "aiohttp.request('GET', url)",
    "from aiohttp import ClientSession\nClientSession()",
    "from aiohttp.resolver import ThreadedResolver\nThreadedResolver()",
    "socket.getaddrinfo(host, None)",
    "socket.gethostbyname_ex(host)",
    "from node.execution.process import finish\nfinish(['ping', host])",
    "from node.execution import process\nprocess.start(['ping', host])",
    "asyncio.create_subprocess_exec('ping', host)",
    "import subprocess",
    "import os\nos.execvp('ping', ['ping', host])",
    "import os\nos.posix_spawn('/bin/ping', ['ping', host], {})",
    "import smtplib",
    "from urllib.request import Request",
    "from urllib import request",
    "import requests.sessions",
    "import httpx as client",
    "import urllib3",
    "import xmlrpc.client",
    "import dns.asyncquery",
    "from dns import resolver",
    "from http.client import HTTPSConnection\nHTTPSConnection(host)",
    "from logging import handlers\nhandlers.SysLogHandler((host, 514))",
    "from asyncpg import connect\nconnect(dsn)",
    "importlib.import_module('smtplib')",
    "getattr(socket, name)()",
])  # fmt: skip
def test_a_new_way_out_is_seen(source: str) -> None:
    """The search finds each kind of way out, by whatever name it goes in a module."""
    assert _ways_out(list(ast.walk(ast.parse(source))))


@pytest.mark.parametrize("source", [
    "client.get(url); connect()",
    "def read(plain: socket.socket | None) -> asyncio.StreamReader: ...",
    "isinstance(error, aiohttp.ClientError)",
    "import urllib.parse",
    "import dns.message",
    "import os\nos.read(number, 10)",
])  # fmt: skip
def test_nothing_else_is_taken_for_one(source: str) -> None:
    """The search takes nothing for a way out that sends nothing."""
    assert not _ways_out(list(ast.walk(ast.parse(source))))


def test_judges_exist_and_are_asked() -> None:
    """Each judge is there, and something else than itself calls it, or looks at its table."""
    for path, way in WAYS_OUT.items():
        if way.judge is None:
            continue
        file, name = way.judge.split(":")
        named = rf"^\s*(?:async )?(?:def )?{name}\b"
        assert re.search(named, Path(file).read_text(), re.MULTILINE), path
        users = [
            source
            for source in (*Path("node").rglob("*.py"),)
            if re.search(rf"\b{name}\b", source.read_text()) and str(source) != file
        ]
        assert users, f"nothing asks {way.judge}"


def test_tools_get_their_part_from_the_launcher_alone() -> None:
    """A tool's command is made where its part was judged, or where the owner tries a plugin."""
    makers = {
        str(path)
        for path, tree in parsed("node")
        for node in nodes(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "command"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "tool"
    }
    tried = {"node/execution/trial.py", "node/plugins/conformity.py"}
    assert makers == {"node/execution/launcher.py", *tried}
    measure = Path("node/execution/launcher.py").read_text()
    judged, made = (
        measure.index("self._targets.checked_part("),
        measure.index("tool.command(context)"),
    )
    assert judged < made
    assert "self._targets.checked_part_of_user(" in measure[judged:made]


REFUSING = {
    "POST /v1/archives": Role.ARCHIVE,
    "PATCH /v1/archives/{name}": Role.ARCHIVE,
    "POST /v1/webhooks": Role.WEBHOOK,
    "POST /v1/nodes": Role.PEER,
}


def test_roles_follow_the_table() -> None:
    """A user who may name no address in a role has no route on which to name one."""
    for route, role in REFUSING.items():
        assert WAYS[role][Asker.USER] is Reach.NONE
        assert PERMISSIONS[route] in {Access.OPERATE, Access.OWN}, route


def test_the_page_has_the_table() -> None:
    """The documentation has a row for each way out, with the same role and judge."""
    text = PAGE.read_text()
    rows = {cells[0].strip().strip("`"): cells for cells in map(_cells, text.splitlines()) if cells}
    for path, way in WAYS_OUT.items():
        assert path in rows, f"{PAGE.name} lacks {path}"
        cells = [cell.strip().strip("`") for cell in rows[path]]
        assert cells[1] == way.role, path
        assert cells[2] == way.asker, path
        assert cells[3] == (way.judge or "nothing"), path
        shown = re.findall(r"`([^`]+)`", rows[path][4])
        assert shown or way.judge is None, f"{path}: no test shows it"
        for each in shown:
            assert each.startswith("make ") or (REPOSITORY / each).exists(), each
    reaches = {
        (cells[0].strip(), *(cell.strip() for cell in cells[1:5]))
        for cells in map(_cells, text.splitlines())
        if cells and cells[0].strip() in set(Role)
    }
    assert reaches == {(role, *(WAYS[role][asker] for asker in Asker)) for role in Role}


def _cells(line: str) -> list[str]:
    return line.strip().strip("|").split("|") if line.startswith("|") else []


def test_a_search_for_a_path_is_judged_first() -> None:
    """A client of pScheduler has packets sent to an address that was judged as a user's target."""
    source = (REPOSITORY / "node/pscheduler/api/status.py").read_text()
    judged, sent = source.index(".probed_address(dest"), source.index("path_mtu.find(address")
    assert judged < sent
