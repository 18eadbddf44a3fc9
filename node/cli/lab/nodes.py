"""One node of a lab: its address, the command that runs it, and waiting until it is ready."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import string
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from node.client.exchanges import Exchange, NoAnswerError, Request, Server
from node.client.users import UserClient
from node.execution import process
from node.execution.process import RunningProcess
from node.model.errors import HostError, ParleyError
from node.model.host_limits.document import EVERYTHING
from node.model.loopback import is_exposed
from node.model.wire.nodes import NodeAddition
from node.runtime.clock import SystemClock
from node.runtime.settings import Settings
from node.runtime.threads import aside
from node.trust.keys import NodeKey
from node.trust.tls import TlsOptions, pinned_options

_POLL_S = 0.05
_REQUEST_S = 30.0
_LIMITS = f"""{EVERYTHING}rank = "own"

[who.people]
users = true

[who.clients]
clients = true

[targets.lab]
networks = ["127.0.0.0/8"]

[[rule]]                               # the lab itself may be on loopback
name = "people"
who = ["people", "clients"]
to = ["participants", "public", "private", "lab"]
"""
"""The limits of each node: all of them have one owner, so priorities alone decide between tasks."""


@dataclass(frozen=True)
class LabNode:
    """A running node: its ``url``, its ``address`` for measurements, and how to use it."""

    name: str
    url: str
    token: str
    dsn: str
    address: str
    state: str
    """Its state directory; the file ``token`` there is the users' token."""

    @property
    def identity(self) -> str:
        """Its key, by which others know it."""
        return NodeKey.load_or_create(Path(self.state) / "node.pem").identity

    @property
    def tls(self) -> TlsOptions:
        """The options of TLS for requests to it."""
        return pinned_options(self.identity) if self.url.startswith("https:") else {}


@dataclass(frozen=True)
class NodePlan:
    """The arguments that a node is started with. ``listen`` is ``HOST:PORT``."""

    name: str
    listen: str
    url: str
    address: str
    dsn: str
    state: Path
    log: Path
    namespace: str | None = None


CommandFactory = Callable[[NodePlan], list[str]]

_EACH_ITS_OWN = frozenset(
    {
        "name",
        "listen",
        "url",
        "address",
        "dsn",
        "state_dir",
        "allow_remote",
        "plain_http",
        "pull",
        "pscheduler_listen",
    }
)
"""Settings that a lab sets for each node itself."""


def settings_given(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in an environment that apply to every node of a lab."""
    names = (f"PARLEY_{name.upper()}" for name in Settings.model_fields.keys() - _EACH_ITS_OWN)
    return {name: environment[name] for name in sorted(names) if name in environment}


def node_command(plan: NodePlan) -> list[str]:
    """Return the argv of one of our nodes, without entering its namespace."""
    argv = [sys.executable, "-m", "node.cli.main", "up", "--name", plan.name]
    argv += ["--listen", plan.listen, "--url", plan.url, "--address", plan.address]
    argv += ["--dsn", plan.dsn, "--state-dir", str(plan.state)]
    if not plan.listen.startswith("127."):
        argv.append("--allow-remote")
    return [*argv, "--plain-http"] if is_exposed(plan.url) else argv


def names() -> Iterator[str]:
    """Yield ``a`` to ``z``, then ``n27``, ``n28`` and so on."""
    letters = string.ascii_lowercase
    return itertools.chain(letters, (f"n{number}" for number in itertools.count(len(letters) + 1)))


async def start(plan: NodePlan, command: CommandFactory) -> RunningProcess:
    """Start the node's process; it is not ready yet."""
    inside = ["ip", "netns", "exec", plan.namespace] if plan.namespace else []
    plan.state.mkdir(mode=0o700, exist_ok=True)
    limits = plan.state / "limits.toml"
    if not limits.exists():
        limits.write_text(_LIMITS)
    environment = {
        "PARLEY_ACCOUNT": "root",  # it would not reach the database of the lab otherwise
        "PARLEY_LIMITS": str(limits),
        **settings_given(os.environ),
        **module_environment(),
    }
    return await process.start(
        [*inside, *command(plan)], cwd=plan.state, log=plan.log, env=environment
    )


async def ready(plan: NodePlan, running: RunningProcess, within_s: float) -> LabNode:
    """Wait until the node answers ``/readyz`` with 200, and return it.

    :raises HostError: it ended, or was not ready in time; the message has the end of its log.
    """
    node = LabNode(plan.name, plan.url, "", plan.dsn, plan.address, str(plan.state))
    answer, tls = "nothing", node.tls
    try:
        async with asyncio.timeout(within_s):
            while not running.ended:
                answer = await _readiness(plan.url, tls)
                if answer == "200":
                    return replace(node, token=_token(plan))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S):
                        await running.wait()
    except TimeoutError:
        why = f"was not ready within {within_s:g} s; {plan.url}/readyz last returned {answer}"
    else:
        why = f"ended with exit code {(await running.wait()).exit_code} before it was ready"
    raise HostError(f"node {plan.name} {why}. Its log ends:\n{process.tail_of(plan.log, 20)}")


async def introduce(one: LabNode, other: LabNode) -> None:
    """Register ``other`` at ``one``.

    :raises HostError: ``one`` refused; says why.
    """
    addition = NodeAddition(url=other.url, identity=other.identity if other.tls else None)
    try:
        async with UserClient(
            one.url, one.token, SystemClock(), tls=one.tls, plain_http=True
        ) as client:
            await client.add_node(addition)
    except ParleyError as error:
        raise HostError(
            f"node {other.name} could not be registered at node {one.name}: {error.detail}"
        ) from error


def module_environment() -> dict[str, str]:
    """Return the variables that make ``python -m node…`` work from any directory."""
    return {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}


async def _readiness(url: str, tls: TlsOptions) -> str:
    """Return the status of the answer of a node to ``/readyz``, or why there is none."""

    def ask() -> str:
        with contextlib.closing(Server(url, tls)) as server:
            request = Request("GET", "/readyz", patience_s=_REQUEST_S)
            return str(Exchange(server, request).answer().status)

    try:
        return await aside(ask, "readiness of a node")
    except NoAnswerError as error:
        return error.cause


def _token(plan: NodePlan) -> str:
    """Return the token that a node created at its first start."""
    try:
        return (plan.state / "token").read_text().strip()
    except FileNotFoundError:
        raise HostError(
            f"node {plan.name} is ready but wrote no token to {plan.state / 'token'}, so it cannot "
            "be used; check that its state directory is writable"
        ) from None
