"""Every way out of the program is in one table, with who names the other end and what judges it.

A way out is a call by which something is sent to a host, or its name is looked up: a socket, a
client session, a look-up, a client of a store, or a program that gets a host. The documentation has
the same table. A new one needs a row here and there, and so somebody who has thought about it.
"""

from __future__ import annotations

import ast
import re
import sys
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
    | os\.(system|popen|exec\w+|spawn\w+|posix_spawnp?|startfile)
    | aiohttp\.(\w+\.)*(ClientSession|request|ThreadedResolver|AsyncResolver|DefaultResolver)
    | asyncpg\.(\w+\.)?(connect|create_pool|Pool)
    | http\.client\.HTTPS?Connection
    | ssl\.get_server_certificate
    | logging\.(handlers|config)(\.\w+)?
    | urllib\.request(\.\w+)?
    | (eval|exec|__import__)
    | (aiohttp|asyncio|asyncpg|os|socket|sys)\.(__dict__|modules)
    | node\.execution\.process\.(start|finish)
    | node\.execution\.(path_mtu\.find|port_probes\.reach|ways_out\.judging_\w+)
    | node\.plugins\.tools\.programs\.owamp_packets\.PacketSocket
    | node\.plugins\.transport\.posting\.Poster
    """,
    re.VERBOSE,
)
"""Names that are ways out, as they are called where they are defined: others' and our own."""
METHODS = frozenset(
    {
        "card", "card_and_lineage", "create_connection", "create_datagram_endpoint",
        "create_unix_connection", "getaddrinfo", "getnameinfo", "sock_connect", "sock_sendto",
        "subprocess_exec", "subprocess_shell",
    }
)  # fmt: skip
"""Methods whose call is a way out, whatever it is called on; ``card`` fetches one from a URL."""
MODULES = re.compile(
    r"""
    _posixsubprocess | _socket | asyncio\.subprocess | dns\.(async)?(query|resolver) | ftplib
    | imaplib | logging\.(handlers|config) | multiprocessing | nntplib | opentelemetry\.exporter
    | poplib | pty | smtplib | socketserver | subprocess | syslog | telnetlib | urllib\.request
    | webbrowser | xmlrpc
    """,
    re.VERBOSE,
)
"""Modules whose import alone is a way out, with all in them."""
HARMLESS = frozenset(
    {
        "aiohttp", "apscheduler", "asyncpg", "click", "cramjam", "cronsim", "cryptography", "dns",
        "dotenv", "google", "jmespath", "joserfc", "jq", "lead", "node", "opentelemetry", "orjson",
        "parley_client", "portion", "prometheus_client", "pyarrow", "pydantic", "pydantic_core",
        "pydantic_settings", "rich", "structlog", "yaml", "yarl",
    }
) | sys.stdlib_module_names  # fmt: skip
"""Modules whose import alone is none, but for what is said above; every other module is one."""
LEADING = frozenset({"aiohttp", "asyncio", "asyncpg", "os", "socket"})
"""Modules in which a name that is looked up at run time may be a way out."""
PROGRAMS = "node/plugins/tools/"
"""The tools and their own programs: what they reach is in the part that the launcher gives them."""


class Way(NamedTuple):
    """A way out: in which role, on whose word, and the function that judges it.

    ``judge`` is a module and a name in it; None where nobody but the owner names the other end, or
    where it is on this host. ``at`` are the functions of a file that have it; another one there is
    another way.
    """

    role: str
    asker: str
    judge: str | None = None
    at: str = ""


TARGETS = "node/execution/targets.py:checked_part"
WAYS_OUT: dict[str, Way] = {
    PROGRAMS: Way("target, participant", "lead, user, owner", TARGETS),
    "node/execution/targets.py": Way(
        "name",
        "lead, user",
        "node/model/ways_out.py:refusal",
        at="_resolve session_to_introduced session_to_moved",
    ),
    "node/runtime/opt_outs.py": Way("name server", "owner", at="module"),
    "node/runtime/resolver.py": Way(
        "name server", "owner", at="_is_unreachable _look_up getaddrinfo getnameinfo module"
    ),
    "node/execution/ways_out.py": Way(
        "name, peer",
        "publisher, node",
        "node/model/ways_out.py:refusal",
        at="__init__ endpoint judging_session",
    ),
    "node/operation/pair.py": Way(
        "peer",
        "node",
        "node/execution/targets.py:node_refusal",
        at="_address _mtu_checks _peering_check _port_checks",
    ),
    "node/execution/path_mtu.py": Way(
        "peer, target", "node, user", "node/execution/targets.py:node_refusal", at="_link_mtu find"
    ),
    "node/execution/port_probes.py": Way(
        "peer",
        "node",
        "node/execution/targets.py:probe_refusal",
        at="_listen _listen_at _try_tcp _try_udp",
    ),
    "node/plugins/transport/": Way("archive, webhook", "owner", "node/model/ways_out.py:WAYS"),
    "node/plugins/archivers/": Way("archive", "owner", "node/model/ways_out.py:WAYS"),
    "node/store/results/": Way("archive", "owner", "node/model/ways_out.py:WAYS"),
    "node/access/oidc.py": Way(
        "issuer",
        "owner, publisher",
        "node/model/ways_out.py:url_refusal",
        at="_fetch _fetch_elsewhere",
    ),
    "node/cli/services.py": Way(
        "peer", "owner, node", "node/execution/targets.py:moved_refusal", at="_notify _work"
    ),
    "node/client/exchanges.py": Way(
        "node's API, peer", "owner", at="_SecuredConnection new_connection"
    ),
    "node/cli/published.py": Way(
        "document",
        "owner, publisher",
        "node/model/ways_out.py:url_refusal",
        at="_connector _fetch_once",
    ),
    "node/cli/templates.py": Way("name", "owner, publisher", at="resolve"),
    "node/store/database.py": Way("database", "owner", at="_listen_once _probe open"),
    "node/store/migrating.py": Way("database", "owner", at="connection_to"),
    "lead/simulation/driver.py": Way("database", "owner", at="__init__"),
    "node/execution/launcher.py": Way(
        "target, participant", "lead, user, owner", TARGETS, at="_start"
    ),
    "node/execution/stalls.py": Way("participant", "lead, user, owner", TARGETS, at="_ask"),
    "node/execution/transforming.py": Way("this host", "owner", at="run_limited_child"),
    "node/execution/versions.py": Way("this host", "owner", at="_ask"),
    "node/postgres/": Way("database", "owner"),
    "node/cli/lab/": Way("this host", "owner"),
    "node/execution/contexts.py": Way("this host", "owner", at="_address_defect"),
    "node/execution/netlink.py": Way("this host", "owner", at="_answers"),
    "node/execution/releaser.py": Way("this host", "owner", at="_take"),
    "node/execution/tool_runner.py": Way("this host", "owner", at="_connect _spawn"),
    "node/execution/tool_runner_program.py": Way(
        "this host", "owner", at="_become _connections main"
    ),
    "node/execution/trial.py": Way("this host", "owner", at="_free_port _is_free _try_part"),
    "node/execution/process.py": Way("this host", "owner", at="module"),
    "node/cli/open.py": Way("node's API", "owner", at="module"),
    "node/client/peers.py": Way("peer", "owner", at="_card_at card"),
    "node/journal/webhooks.py": Way("webhook", "owner", "node/model/ways_out.py:WAYS", at="_post"),
    "node/peers/announcer.py": Way(
        "peer", "node", "node/execution/targets.py:moved_refusal", at="_try_move"
    ),
    "node/peers/monitor.py": Way("peer", "owner", at="_look"),
    "node/peers/registration.py": Way(
        "peer", "owner, publisher", "node/execution/targets.py:introduced_refusal", at="add"
    ),
    "node/pscheduler/owamp/server.py": Way(
        "target", "owner", "node/pscheduler/owamp/terms.py:refusal", at="packet_socket"
    ),
    "node/pscheduler/api/status.py": Way(
        "target", "user", "node/execution/targets.py:probed_address", at="mtu_safe"
    ),
    "node/results/traces.py": Way("collector", "owner", at="__init__"),
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
    return parts[0] not in HARMLESS or any(
        MODULES.fullmatch(".".join(parts[:end])) for end in range(1, len(parts) + 1)
    )


def _annotations(every: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yield all that is said of types: in annotations, and in questions about them."""
    for each in every:
        match each:
            case ast.AnnAssign(annotation=told) | ast.arg(annotation=ast.expr() as told):
                yield from ast.walk(told)
            case (
                ast.FunctionDef(returns=ast.expr() as told)
                | ast.AsyncFunctionDef(returns=ast.expr() as told)
            ):
                yield from ast.walk(told)
            case ast.Call(func=ast.Name(id="isinstance" | "cast"), args=args):
                yield from (inner for told in args for inner in ast.walk(told))
            case _:
                pass


def _is_looked_up(each: ast.AST, meant: Mapping[str, str]) -> bool:
    """Return whether a name of a module is looked up at run time."""
    match each:
        case ast.Call(func=ast.Name(id="getattr" | "vars"), args=[module, *_]):
            return _dotted(module, meant) in LEADING
        case ast.Call(func=ast.Name(id="__import__")):
            return True
        case ast.Call(args=[ast.Constant(value=str(name)), *_], func=called):
            looked = _dotted(called, meant) == "importlib.import_module"
            return looked and (_is_leading_out(name) or name in LEADING)
        case _:
            return False


def _ways_out(every: Sequence[ast.AST]) -> list[int]:
    """Return the lines of the ways out in a module: wherever one is named, not only called."""
    imported = [(each, pair) for each in every for pair in _imported(each)]
    meant = {name: full for _, (name, full) in imported if "." not in name}
    lines = [
        each.lineno  # type: ignore[attr-defined]
        for each, (_, full) in imported
        if _is_leading_out(full) or full in {f"{module}.*" for module in LEADING}
    ]
    types = set(map(id, _annotations(every)))
    for each in every:
        called = each.func if isinstance(each, ast.Call) else None
        named = isinstance(each, ast.Name | ast.Attribute) and id(each) not in types
        if (
            (named and NAMES.fullmatch(_dotted(each, meant)))
            or (isinstance(called, ast.Attribute) and called.attr in METHODS)
            or _is_looked_up(each, meant)
        ):
            lines.append(each.lineno)  # type: ignore[attr-defined]
    return lines


def _around(line: int, tree: ast.Module) -> str:
    """Return the innermost function or class around a line; the module if there is none."""
    around = [
        each
        for each in nodes(tree)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and each.lineno <= line <= (each.end_lineno or 0)
    ]
    return max(around, key=lambda each: each.lineno).name if around else "module"


def _found() -> dict[str, str]:
    """Return the functions that have a way out, by file."""
    found: dict[str, str] = {}
    for path, tree in parsed("node", "lead"):
        if lines := _ways_out(nodes(tree)):
            found[str(path)] = " ".join(sorted({_around(line, tree) for line in lines}))
    return found


def _way(path: str) -> str | None:
    """Return the row of a file: its own, or that of its folder."""
    folders = [key for key in WAYS_OUT if key.endswith("/") and path.startswith(key)]
    return path if path in WAYS_OUT else next(iter(folders), None)


def test_every_way_out_is_in_the_table() -> None:
    """No socket, session, look-up, or client of a store is anywhere but where the table says."""
    found = _found()
    unknown = {path: names for path, names in found.items() if _way(path) is None}
    assert unknown == {}, f"give each a row in WAYS_OUT and in {PAGE.name}, and a judge"
    assert {_way(path) for path in found} == set(WAYS_OUT), "rows without a way out"
    files = {path: way.at for path, way in WAYS_OUT.items() if not path.endswith("/")}
    assert {path: found[path] for path in files} == files, "does its judge judge this one, too?"


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
    "vars(socket)[name]()",
    "import sys\nsys.modules['socket'].socket()",
    "class Session(aiohttp.ClientSession): ...",
    "connect = [socket.create_connection]",
    "def read(connect=socket.create_connection): ...",
    "connect = socket.create_connection if name else None",
    "from socket import *",
    "from asyncio import subprocess",
    "import urllib\nurllib.request.urlopen(url)",
    "import ssl\nssl.get_server_certificate((host, 443))",
    "import multiprocessing",
    "import paramiko",
    "import a_client_that_nobody_has_heard_of",
    "from node.plugins.transport.posting import Poster\nPoster(url)",
    "from node.plugins.tools.programs.owamp_packets import PacketSocket\nPacketSocket(2)",
    "from node.execution import path_mtu\npath_mtu.find(host)",
    "self._peers.card(url)",
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
    "import asyncio.queues",
    "from node.model.times import SECOND",
    "plain = cast(socket.socket, plain)",
])  # fmt: skip
def test_nothing_else_is_taken_for_one(source: str) -> None:
    """The search takes nothing for a way out that sends nothing."""
    assert not _ways_out(list(ast.walk(ast.parse(source))))


def test_judges_exist_and_are_asked() -> None:
    """Each judge is there, and something else calls it; a table is looked at where it stands."""
    for path, way in WAYS_OUT.items():
        if way.judge is None:
            continue
        file, name = way.judge.split(":")
        named = rf"^\s*(?:async )?(?:def )?{name}\b"
        assert re.search(named, Path(file).read_text(), re.MULTILINE), path
        is_table = name.isupper()
        asked = rf"\b{name}\[" if is_table else rf"\b{name}\b"
        users = [
            source
            for source in (*Path("node").rglob("*.py"),)
            if re.search(asked, source.read_text()) and (is_table or str(source) != file)
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
