"""The entry point ``parley``, which imports only the command that is called.

``parley --help`` must come at once, so the one-line help of each command is repeated here, and its
module is imported only when it is called. A test compares these lines with the docstrings.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

from node.cli.invocation import global_options

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMANDS: dict[str, tuple[str, str]] = {
    "up": (
        "node.cli.services:up",
        "Run one node here: API, page, lead, and a private Postgres unless --dsn is given.",
    ),
    "lab": ("node.cli.lab:lab_group", "Run several nodes on this host, for trying and testing."),
    "rtt": ("node.cli.shortcuts:rtt", "Measure round-trip time and loss to HOST, any host."),
    "latency": (
        "node.cli.shortcuts:latency",
        "Measure delay, loss and jitter each way between nodes A (default: this one) and B.",
    ),
    "latencybg": (
        "node.cli.shortcuts:latencybg",
        "Measure delay, loss and jitter each way between nodes, continuously.",
    ),
    "interface": (
        "node.cli.shortcuts:interface",
        "Count the traffic of a network interface of a node, continuously.",
    ),
    "throughput": (
        "node.cli.shortcuts:throughput",
        "Measure how many bits per second get from node A (default: this one) to node B.",
    ),
    "dns": (
        "node.cli.shortcuts:dns",
        "Ask a DNS server for NAME, and measure how long the answer takes.",
    ),
    "http": (
        "node.cli.shortcuts:http",
        "Request URL, measure each phase until the answer is complete, and check the answer.",
    ),
    "tcp": (
        "node.cli.shortcuts:tcp",
        "Measure how long TCP connections to PORT of HOST take, any host.",
    ),
    "tls": (
        "node.cli.shortcuts:tls",
        "Measure the TLS handshake with HOST, and look at its certificates.",
    ),
    "clock": (
        "node.cli.shortcuts:clock",
        "Measure how far the clock of node B is ahead of the clock of node A (default: this one).",
    ),
    "trace": ("node.cli.shortcuts:trace", "Find the path to HOST, any host, hop by hop."),
    "mtu": (
        "node.cli.shortcuts:mtu",
        "Find the largest packet that gets to HOST, any host, in one piece.",
    ),
    "task": (
        "node.cli.tasks:task_group",
        "Create, list, show, pause, resume, release, edit and cancel tasks.",
    ),
    "plan": ("node.cli.plans:plan_group", "Preview tasks and meshes; nothing is booked or stored."),
    "run": (
        "node.cli.runs:run_group",
        "List, follow, cancel, export and verify runs, and read their results.",
    ),
    "schedule": (
        "node.cli.schedule:schedule",
        "Show past, current and future runs on the node, by their start.",
    ),
    "explain": (
        "node.cli.explain:explain",
        "Explain why a task or a run is in its state, or why a run has no time.",
    ),
    "simulate": (
        "node.cli.simulate:simulate",
        "Simulate SCENARIO, a name or a TOML or JSON file: what would be promised and delivered.",
    ),
    "reservation": (
        "node.cli.reservations:reservation_group",
        "Reserve time of the node: for maintenance, a demo, or quiet.",
    ),
    "campaign": (
        "node.cli.campaigns:campaign_group",
        "Add, list, show, edit and remove campaigns, and see what they use.",
    ),
    "pool": (
        "node.cli.pools:pool_group",
        "Add, list, show, edit and remove pools, and choose their policies.",
    ),
    "mesh": (
        "node.cli.meshes:mesh_group",
        "Apply, list and remove meshes, and see what they deliver.",
    ),
    "archive": (
        "node.cli.archives:archive_group",
        "Configure where results are delivered, show the backlog, and retry deliveries.",
    ),
    "node": (
        "node.cli.nodes:node_group",
        "List, show, add, remove, pardon and compare the nodes known here; own attributes, shares.",
    ),
    "limits": (
        "node.cli.limits:limits_group",
        "Check and show the limits of what other nodes may have of this host.",
    ),
    "token": (
        "node.cli.tokens:token_group",
        "Add, list and revoke the tokens of the node's users; each has a role.",
    ),
    "audit": (
        "node.cli.audit:audit",
        "Show who did what on the node, and who was refused.",
    ),
    "admin": (
        "node.cli.admin:admin_group",
        "Migrate, back up, restore and move what a node has.",
    ),
    "test": ("node.cli.nodes:test_group", "List and show what can be measured."),
    "tool": ("node.cli.nodes:tool_group", "List the programs that measure."),
    "plugin": (
        "node.cli.plugins:plugin_group",
        "List, create and check tests, tools and archivers of other distributions.",
    ),
    "completion": (
        "node.cli.completion:completion",
        "Print the script that completes words in a shell.",
    ),
}
"""Name → import path of the click command, and its one-line help; in the order of the help page."""

_EPILOG = """\b
Ids may be shortened to their first digits; @-1 is the newest task or run.
Exit codes: 0 done, 1 run without a result, 2 usage, 3 refused, 4 no time,
5 node unreachable, 6 not found, 7 timed out, 8 server fault, 130 Ctrl-C.
With -o json an error is a problem document on the last line of standard error.
"""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command and return it."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, name = place[0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of the help page without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


_CONTEXT: Mapping[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.command(cls=LazyGroup, context_settings=dict(_CONTEXT), epilog=_EPILOG)
@global_options
@click.version_option(package_name="parley-scheduler", message="parley %(version)s")
def parley() -> None:
    """Agree with other nodes on a time to measure, measure, and show the result."""


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        _replace_unencodable(stream)
    parley(prog_name="parley")


def _replace_unencodable(stream: TextIO) -> None:
    """Print a question mark for a character that the stream cannot encode, instead of failing."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
