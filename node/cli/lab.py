"""``parley lab``: several complete nodes on this host, for trying and testing."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from node.cli.demo import demo
from node.cli.failures import print_error_lines, report
from node.cli.groups import command_group
from node.cli.invocation import Invocation
from node.cli.options import options
from node.cli.output import aligned_text
from node.cli.progress import Progress
from node.cli.serving import LabHandle, new_lab, run_with_lab, tls_variables, usage_lines
from node.model.errors import NotAllowed, ParleyError

if TYPE_CHECKING:
    from node.lab.wan import WanSettings

_NODES_MAX = 50
_WHOLE = 100


class _Loss(click.ParamType[float]):
    """A share of packets: ``1%``, ``1`` and ``0.01`` are all one percent."""

    name = "loss"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        try:
            number = float(value.removesuffix("%"))
        except ValueError:
            self.fail(f"{value!r} is not a share; write 1% or 0.01", param, ctx)
        percent = value.endswith("%") or number >= 1
        share = number / _WHOLE if percent else number
        if not 0 <= share <= 1:
            self.fail(f"{value!r} is not between 0% and 100%", param, ctx)
        return share


@dataclass(frozen=True)
class WanOptions:
    """The requested emulated network between the nodes."""

    delay_ms: float
    loss: float
    rate_mbit: float | None

    def sentence(self) -> str:
        """Return the emulated delay, loss and rate in one sentence."""
        rate = f", {self.rate_mbit:g} Mb/s" if self.rate_mbit else ""
        loss = f"{_WHOLE * self.loss:g} % loss"
        return f"between the nodes: {self.delay_ms:g} ms and {loss} in each direction{rate}"


lab_group = command_group("lab")


lab_group.add_command(demo)


@lab_group.command("up")
@click.option(
    "--nodes",
    type=click.IntRange(1, _NODES_MAX),
    default=3,
    show_default=True,
    help="Number of nodes.",
)
@options("""
    --json as as_json  Print one line of JSON when all nodes are up.
    --namespaces       Network namespaces with a WAN between them (as root).
""")
@click.option(
    "--delay-ms", type=click.FloatRange(0, 10_000), help="Delay of the WAN in each direction."
)
@click.option("--loss", type=_Loss(), help="Loss of the WAN in each direction: 1% or 0.01.")
@click.option("--rate-mbit", type=click.FloatRange(0.01, 100_000), help="Rate of the WAN in Mb/s.")
@click.option("--tls", is_flag=True, help="Let nodes and commands speak TLS, as real hosts do.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress on standard error.")
@click.pass_context
def up(
    context: click.Context,
    /,
    *,
    nodes: int,
    as_json: bool,
    namespaces: bool,
    tls: bool,
    quiet: bool,
    **network: float | None,
) -> None:
    """Start nodes, each with its own database, and serve until Ctrl-C; clean up everything."""
    progress = Progress(quiet=quiet)
    try:
        wan = wan_of(namespaces=namespaces, **network)
        if wan is not None:
            progress.note(wan.sentence())
        lab = new_lab(nodes, progress, None if wan is None else _settings(wan), tls=tls)
        context.exit(asyncio.run(run_with_lab(lab, progress, lambda: _serve(lab, as_json=as_json))))
    except ParleyError as error:
        progress.clear()
        context.exit(report(error, context.ensure_object(Invocation)))


def wan_of(*, namespaces: bool, **network: float | None) -> WanOptions | None:
    """Return the requested network, or ``None`` for plain loopback.

    :raises NotAllowed: namespaces need root.
    """
    given = {name: value for name, value in network.items() if value is not None}
    if not namespaces:
        if given:
            option = "--" + next(iter(given)).replace("_", "-")
            msg = f"{option} needs --namespaces: loopback has no delay, loss or rate to set"
            raise click.UsageError(msg)
        return None
    if os.geteuid() != 0:
        msg = "--namespaces needs root; run it with sudo, or without --namespaces"
        raise NotAllowed(msg)
    return WanOptions(given.get("delay_ms", 0), given.get("loss", 0), given.get("rate_mbit"))


def _settings(wan: WanOptions) -> WanSettings:
    from node.lab.wan import WanSettings

    return WanSettings(delay_ms=wan.delay_ms, loss=wan.loss, rate_mbit=wan.rate_mbit)


async def _serve(lab: LabHandle, *, as_json: bool) -> int:
    click.echo(ready_line(lab) if as_json else ready_text(lab))
    if not as_json:
        print_error_lines("Serving until Ctrl-C.")
    await asyncio.Event().wait()
    return 0


def ready_line(lab: LabHandle) -> str:
    """Return what a program needs to use the nodes, as one line of JSON."""
    names = ("name", "url", "token", "dsn", "address", "state")
    nodes = [{name: getattr(node, name) for name in names} for node in lab.nodes]
    return json.dumps({"nodes": nodes})


def ready_text(lab: LabHandle) -> str:
    """Describe the nodes and how to use them."""
    first = lab.nodes[0]
    rows = [("node", "API and page", "measurement address", "its token")]
    rows += [(node.name, node.url, node.address, f"{node.state}/token") for node in lab.nodes]
    last = lab.nodes[-1]
    return "\n".join(
        [
            aligned_text(rows),
            "",
            *usage_lines(first),
            f"  parley latency {last.name}",
            "Attributes are set on the node itself, with its own token:",
            f"  PARLEY_SERVER={last.url}{tls_variables(last)} \\",
            f"    PARLEY_TOKEN=$(cat {last.state}/token) \\",
            "    parley node set site=two",
        ]
    )
