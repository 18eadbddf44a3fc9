"""``parley rtt``, ``trace``, ``dns`` and the like: create a task, follow its run, print the result.

A shortcut has the common fields of its test as options; all others are set with
``parley task create TEST --spec KEY=VALUE``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate

import click

from node.cli.documents import (
    context_option,
    dependency_options,
    label_options,
    require_seat_count,
    schedule_options,
    with_plan,
)
from node.cli.follow import follow_task
from node.cli.options import AnyCommand, apply_options, options
from node.cli.references import short
from node.cli.runs import RUN, show_outcome
from node.cli.seats import seat_options
from node.cli.session import Session, asks_node
from node.cli.tasks import TASK, announce, schedule_text, task_view
from node.cli.times import DURATION
from node.model import times

_RATE = re.compile(r"(?P<number>\d{1,12}(?:\.\d{1,3})?) ?(?P<factor>[kKMG]?)(?:bit/s|b/s|bps)?")
_FACTORS = {"": 1, "k": 1_000, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000}


class _Rate(click.ParamType[int]):
    """Bits per second: ``50M``, ``1.5G``, ``64000``."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _RATE.fullmatch(value)
        if match is None:
            self.fail(f"{value!r} is not a rate; write 50M for 50 Mb/s", param, ctx)
        return round(float(match["number"]) * _FACTORS[match["factor"]])


_Command = Callable[Concatenate[Session, ...], Coroutine[Any, Any, int]]


class _Port(click.IntRange):
    """A port number; names of services are refused, because they differ between hosts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            range_ = f"{self.min} to {self.max}"
            self.fail(f"{value!r} is not a port; write a number, {range_}", param, ctx)


_PORT = _Port(1, 65535)
_DURATIONS = frozenset({"interval", "timeout", "duration", "omit", "each", "wait"})
_STREAM_DURATION = times.HOUR
"""The default duration of a run of a streaming test."""


class _Shortcut(click.Command):
    """A command that refuses two options for one field, such as ``-4 -6``, unlike click."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments.

        :raises click.UsageError: two options exclude each other; the message names both.
        """
        _, _, given = self.make_parser(ctx).parse_args(args=[*args])
        first: dict[str | None, click.Parameter] = {}
        for option in given:
            other = first.setdefault(option.name, option)
            if other is not option and not ctx.resilient_parsing:
                msg = f"{other.opts[0]} and {option.opts[0]} exclude each other; remove one of them"
                raise click.UsageError(msg, ctx)
        return super().parse_args(ctx, args)


_EXAMPLES = {
    "rtt": ("192.0.2.7", "b.example --count 100 --interval 100ms --repeat 5m --no-wait"),
    "latency": ("b", "a b --count 600 --repeat 1h"),
    "throughput": ("b", "a b --duration 30s --streams 4 --congestion host", "b --udp --rate 50M"),
    "latencybg": ("a b --continuous --no-wait",),
    "interface": ("a --interface eth0 --continuous --no-wait",),
    "trace": ("192.0.2.7", "b.example --tcp --port 443 --as-numbers"),
    "mtu": ("192.0.2.7", "b.example --source b"),
    "dns": ("www.example.org", "example.org --type MX --ask 192.0.2.53 --repeat 10m"),
    "http": ("https://www.example.org/ --status 200 --text Welcome",),
    "tcp": ("b.example 443", "192.0.2.7 22 --banner"),
    "tls": ("www.example.org --days 14 --repeat 1d",),
    "clock": ("b", "a b --count 100"),
}
"""By shortcut, the arguments of examples."""


def _examples(name: str) -> str:
    """Return the example lines that end the help of a shortcut."""
    return "\n".join(("\b", "Examples:", *(f"  parley {name} {a}" for a in _EXAMPLES[name])))


_wait_option = click.option(
    "--wait/--no-wait",
    default=True,
    help="Follow the first run to its end, or only create the task. Default: follow.",
)
_hosts_argument = click.argument("hosts", metavar="[A] B", nargs=-1, required=True)
_source_option = click.option("--source", metavar="NODE", help="The node that measures [this one].")
_udp_port_option = click.option(
    "--port", type=_Port(1024, 65535), help="UDP port of B [assigned by B]."
)
_hops_option = click.option(
    "--hops", "hops_max", type=click.IntRange(1, 64), help="Maximum number of hops [30]."
)
_insecure_option = click.option(
    "--insecure", "verify", flag_value=False, default=None, help="Trust any certificate."
)


def _task_options(*, contexts: bool = False) -> Callable[[_Command], Callable[..., None]]:
    """Add the options that all shortcuts share: schedule, labels, seats, and the global ones.

    ``contexts``: also add ``--context``.
    """
    options = (
        seat_options,
        *([context_option] if contexts else ()),
        label_options,
        dependency_options,
        schedule_options,
        _wait_option,
    )

    def add(command: _Command) -> Callable[..., None]:
        decorated = asks_node(command)
        for option in options:
            decorated = option(decorated)
        return decorated

    return add


def _address_options(command: AnyCommand) -> AnyCommand:
    return apply_options(
        command,
        *(
            click.option(
                f"-{version}", "ip_version", type=int, flag_value=version, default=None,
                help=f"Over IPv{version}.",
            )
            for version in (4, 6)
        ),
    )  # fmt: skip


def _packet_options(count: int, interval: str, length: int) -> Callable[[AnyCommand], AnyCommand]:
    """Add the options of tests that send numbered packets; the defaults are those of the test."""

    def add(command: AnyCommand) -> AnyCommand:
        return apply_options(
            command,
            click.option("--count", type=click.IntRange(1), help=f"Number of packets [{count}]."),
            click.option(
                "--interval", type=DURATION, help=f"Time from packet to packet [{interval}]."
            ),
            click.option(
                "--packet-timeout", type=DURATION, help="A later packet counts as lost [1s]."
            ),
            click.option("--length", type=int, help=f"Bytes in each packet [{length}]."),
        )

    return add


@click.command("rtt", cls=_Shortcut, epilog=_examples("rtt"))
@click.argument("dest", metavar="HOST")
@_source_option
@_packet_options(10, "200ms", 56)
@click.option("--ttl", type=click.IntRange(1, 255), help="Hop limit [the host's].")
@_address_options
@_task_options(contexts=True)
async def rtt(session: Session, /, **given: Any) -> int:
    """Measure round-trip time and loss to HOST, any host."""
    return await _measure(session, "rtt", given)


@click.command("latency", cls=_Shortcut, epilog=_examples("latency"))
@_hosts_argument
@_packet_options(100, "100ms", 44)
@_udp_port_option
@_address_options
@_task_options(contexts=True)
async def latency(session: Session, /, hosts: tuple[str, ...], **given: Any) -> int:
    """Measure delay, loss and jitter each way between nodes A (default: this one) and B."""
    return await _measure(session, "latency", {**given, **_ends(hosts)})


@click.command("throughput", cls=_Shortcut, epilog=_examples("throughput"))
@_hosts_argument
@click.option("--duration", type=DURATION, help="How long to measure, whole seconds [10s].")
@click.option("--omit", type=DURATION, help="Time to leave out at the start [a fifth, at most 2s].")
@click.option("--udp", "protocol", flag_value="udp", help="UDP instead of TCP.")
@click.option("--streams", type=click.IntRange(1, 64), help="Number of parallel streams [1].")
@click.option("--rate", "rate_bps", type=_Rate(), help="Per stream, such as 50M [all; UDP 1M].")
@click.option("--congestion", help="TCP's congestion control, or host [cubic].")
@click.option("--reverse", is_flag=True, default=None, help="B sends to A.")
@click.option("--window-bytes", type=int, help="Size of the socket buffers [the kernel's choice].")
@_address_options
@_task_options(contexts=True)
async def throughput(session: Session, /, hosts: tuple[str, ...], **given: Any) -> int:
    """Measure how many bits per second get from node A (default: this one) to node B."""
    if given["protocol"] == "udp" and given["congestion"]:
        msg = "UDP has no congestion control; remove --congestion or --udp"
        raise click.UsageError(msg)
    return await _measure(session, "throughput", {**given, **_ends(hosts)})


_stream_options = options("""
    --duration DURATION  How long a run lasts [1h].
    --each DURATION      How long the interval of one result is [1m].
    --continuous         Repeat run after run, without gaps.
""")
"""The options of tests that give results repeatedly while a run lasts."""


@click.command("latencybg", cls=_Shortcut, epilog=_examples("latencybg"))
@_hosts_argument
@_stream_options
@click.option("--interval", type=DURATION, help="Time from packet to packet [100ms].")
@click.option("--packet-timeout", type=DURATION, help="A later packet counts as lost [1s].")
@click.option("--length", type=int, help="Bytes in each packet [44].")
@_udp_port_option
@_address_options
@_task_options()
async def latencybg(session: Session, /, hosts: tuple[str, ...], **given: Any) -> int:
    """Measure delay, loss and jitter each way between nodes, continuously.

    From node A (default: this one) to node B and back, with a result each minute.
    """
    return await _measure(session, "latencybg", {**given, **_ends(hosts)})


@click.command("interface", cls=_Shortcut, epilog=_examples("interface"))
@click.argument("host", metavar="[NODE]", required=False)
@click.option(
    "--interface", metavar="NAME", help="The interface, such as eth0 [that of the default route]."
)
@_stream_options
@_task_options()
async def interface(session: Session, /, **given: Any) -> int:
    """Count the traffic of a network interface of a node, continuously.

    NODE is this one by default; there is a result each minute.
    """
    return await _measure(session, "interface", given)


@click.command("trace", cls=_Shortcut, epilog=_examples("trace"))
@click.argument("dest", metavar="HOST")
@_source_option
@click.option("--icmp", "protocol", flag_value="icmp", help="Use ICMP echo instead of UDP.")
@click.option("--tcp", "protocol", flag_value="tcp", help="Use TCP SYN instead of UDP.")
@click.option("--port", type=_PORT, help="Port for --tcp [80].")
@_hops_option
@options("""
    --probes 1..10              Packets for each hop [3].
    --packet-timeout DURATION   A later packet counts as lost [2s].
    --length INTEGER            Bytes of each packet [the tool's].
    --names as names=true       Look up the names of the hops.
    --as-numbers as as_numbers=true  Look up the networks (AS numbers) of the hops.
""")
@_address_options
@_task_options(contexts=True)
async def trace(session: Session, /, **given: Any) -> int:
    """Find the path to HOST, any host, hop by hop."""
    return await _measure(session, "trace", given)


@click.command("mtu", cls=_Shortcut, epilog=_examples("mtu"))
@click.argument("dest", metavar="HOST")
@_source_option
@click.option("--max", "mtu_max_bytes", type=int, help="Largest size to try [the interface's MTU].")
@click.option("--packet-timeout", type=DURATION, help="A later packet counts as lost [1s].")
@_hops_option
@_address_options
@_task_options(contexts=True)
async def mtu(session: Session, /, **given: Any) -> int:
    """Find the largest packet that gets to HOST, any host, in one piece."""
    return await _measure(session, "mtu", given)


def _timeout_option(what: str, default: str) -> Callable[[AnyCommand], AnyCommand]:
    """Add ``--within``, the timeout of the test; ``--timeout`` already limits the command."""
    return click.option("--within", "packet_timeout", type=DURATION, help=f"{what} [{default}].")


@click.command("dns", cls=_Shortcut, epilog=_examples("dns"))
@click.argument("name")
@click.option(
    "--type", "type", metavar="TYPE", help="Record type: A, AAAA, MX, TXT, PTR and others [A]."
)
@_source_option
@click.option("--ask", metavar="HOST", help="The server to ask [the node's resolvers].")
@click.option("--port", type=_PORT, help="The server's port [53].")
@click.option("--tcp", "protocol", flag_value="tcp", help="Use TCP instead of UDP.")
@click.option("--dnssec", is_flag=True, default=None, help="Request signatures.")
@click.option("--tries", type=click.IntRange(1, 10), help="Maximum number of tries [3].")
@_timeout_option("Timeout of each try", "2s")
@options("""
    --expect VALUE as expected  An address or text that the answer must have.
    --rcode TEXT                The code the answer must have [NOERROR].
""")
@_address_options
@_task_options()
async def dns(session: Session, /, **given: Any) -> int:
    """Ask a DNS server for NAME, and measure how long the answer takes."""
    # --server is a global option that names the node, so the DNS server has another one.
    kind, server = given["type"], given["ask"]
    spec = {**given, "server": server, "type": kind and kind.upper()}
    return await _measure(session, "dns", spec)


@click.command("http", cls=_Shortcut, epilog=_examples("http"))
@click.argument("url")
@_source_option
@options("""
    --head as method=HEAD       Use HEAD instead of GET.
    --header 'NAME: VALUE'... as headers  A header to send; repeat for more.
    --redirects 0..20           Maximum number of redirects [5].
    --status 100..599           Required status [below 400].
    --text TEXT                 A text that the body must have.
""")
@_insecure_option
@click.option(
    "--bytes-max", type=click.IntRange(1), help="Maximum bytes to read of the body [1000000]."
)
@_timeout_option("Timeout of the whole request", "10s")
@_address_options
@_task_options()
async def http(session: Session, /, **given: Any) -> int:
    """Request URL, measure each phase until the answer is complete, and check the answer."""
    return await _measure(session, "http", {**given, "headers": _headers(given["headers"])})


def _headers(lines: tuple[str, ...]) -> dict[str, str] | None:
    """Return the values of headers written as ``NAME: VALUE``, by name; None if none is given."""
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            msg = f"{line!r} is not a header; write 'Accept: text/html'"
            raise click.UsageError(msg)
        headers[name.strip()] = value.strip()
    return headers or None


@click.command("tcp", cls=_Shortcut, epilog=_examples("tcp"))
@click.argument("dest", metavar="HOST")
@click.argument("port", type=_PORT)
@_source_option
@click.option("--count", type=click.IntRange(1, 1000), help="Number of connections [3].")
@click.option("--interval", type=DURATION, help="Time from one to the next [500ms].")
@_timeout_option("Timeout of each connection", "3s")
@click.option("--banner", is_flag=True, default=None, help="Wait for what HOST sends first.")
@_address_options
@_task_options()
async def tcp(session: Session, /, **given: Any) -> int:
    """Measure how long TCP connections to PORT of HOST take, any host."""
    return await _measure(session, "tcp", given)


@click.command("tls", cls=_Shortcut, epilog=_examples("tls"))
@click.argument("dest", metavar="HOST")
@click.option("--port", type=_PORT, help="The TCP port [443].")
@_source_option
@click.option("--server-name", metavar="NAME", help="The name in the certificate [HOST].")
@click.option("--days", "days_min", type=click.IntRange(0), help="Days it must have left [0].")
@_insecure_option
@click.option("--alpn", multiple=True, help="Offer this protocol, such as h2.")
@_timeout_option("Timeout of the whole request", "10s")
@_address_options
@_task_options()
async def tls(session: Session, /, **given: Any) -> int:
    """Measure the TLS handshake with HOST, and look at its certificates."""
    return await _measure(session, "tls", {**given, "alpn": list(given["alpn"]) or None})


@click.command("clock", cls=_Shortcut, epilog=_examples("clock"))
@_hosts_argument
@click.option("--count", type=click.IntRange(1, 1000), help="Packets [20].")
@click.option("--interval", type=DURATION, help="Time from packet to packet [100ms].")
@click.option("--packet-timeout", type=DURATION, help="A later packet counts as lost [1s].")
@_udp_port_option
@_address_options
@_task_options()
async def clock(session: Session, /, hosts: tuple[str, ...], **given: Any) -> int:
    """Measure how far the clock of node B is ahead of the clock of node A (default: this one)."""
    return await _measure(session, "clock", {**given, **_ends(hosts)})


_FIELDS = {
    "clock": ("source", "dest", "count", "interval", "timeout", "port", "ip_version"),
    "dns": (
        "source", "name", "type", "server", "port", "protocol", "dnssec", "tries", "timeout",
        "expected", "rcode", "ip_version",
    ),
    "http": (
        "source", "url", "method", "headers", "redirects", "status", "text", "verify", "bytes_max",
        "timeout", "ip_version",
    ),
    "tcp": (
        "source", "dest", "port", "count", "interval", "timeout", "banner", "ip_version",
    ),
    "tls": (
        "source", "dest", "port", "server_name", "days_min", "verify", "alpn", "timeout",
        "ip_version",
    ),
    "interface": ("host", "interface", "duration", "each"),
    "latencybg": (
        "source", "dest", "duration", "each", "interval", "timeout", "length", "port", "ip_version",
    ),
    "rtt": ("source", "dest", "count", "interval", "timeout", "length", "ttl", "ip_version"),
    "latency": ("source", "dest", "count", "interval", "timeout", "length", "port", "ip_version"),
    "throughput": (
        "source", "dest", "duration", "omit", "protocol", "streams", "rate_bps", "congestion",
        "reverse", "window_bytes", "ip_version",
    ),
    "trace": (
        "source", "dest", "protocol", "port", "hops_max", "probes", "wait", "length", "names",
        "as_numbers", "ip_version",
    ),
    "mtu": ("source", "dest", "mtu_max_bytes", "wait", "hops_max", "ip_version"),
}  # fmt: skip


def _ends(hosts: tuple[str, ...]) -> dict[str, str | None]:
    """Return source and dest of ``[A] B``; source is None (this node) if only B is given."""
    if len(hosts) > len(("source", "dest")):
        msg = f"at most two hosts can be given, not {len(hosts)}"
        raise click.UsageError(msg)
    return {"source": hosts[0] if len(hosts) > 1 else None, "dest": hosts[-1]}


def spec_of(test: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec that the options describe; it has only the fields that were given."""
    # --timeout and --wait are of the whole command, so a packet's timeout has another name.
    packet_timeout = given.get("packet_timeout")
    values = {**given, "timeout": packet_timeout, "wait": packet_timeout}
    return {
        name: times.format_duration(values[name]) if name in _DURATIONS else values[name]
        for name in _FIELDS[test]
        if values[name] is not None
    }


def continuous_options(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace ``--continuous`` by a ``--repeat`` as long as a run lasts.

    :raises click.UsageError: ``--repeat`` or ``--cron`` is given as well.
    """
    if not given.get("continuous"):
        return given
    if given["repeat"] is not None or given["cron"]:
        msg = "--continuous repeats by itself; remove --repeat and --cron"
        raise click.UsageError(msg)
    return {**given, "repeat": given["duration"] or _STREAM_DURATION}


async def _measure(session: Session, test: str, given: Mapping[str, Any]) -> int:
    given = continuous_options(given)
    session.output.require_fields(RUN if given["wait"] else TASK)
    body = {"test": {"type": test, "spec": spec_of(test, given)}}
    document = require_seat_count(await with_plan(session, body, given))
    task = await session.client.create_task(document)
    if not given["wait"]:
        session.output.print_one(task, TASK, task_view)
        return 0
    announce(session, task)
    if task.after is not None:
        return 0  # nobody knows when the first run that it follows ends
    exit_code = await show_outcome(session, await follow_task(session, task))
    if given["repeat"] is not None or given["cron"]:
        session.progress.note(
            f"It continues, {schedule_text(task.model_dump(mode='json'))}:\n"
            f"  results:  parley run list --task {short(task.id)}\n"
            f"  cancel:   parley task cancel {short(task.id)}"
        )
    return exit_code
