"""``parley rtt``, ``trace``, ``dns`` and the like: create a task, follow its run, print the result.

A shortcut has the common fields of its test as options; all others are set with
``parley task create TEST --spec KEY=VALUE``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from inspect import cleandoc
from typing import Any

import click

from node.cli.commands import COMMANDS
from node.cli.documents import (
    context_option,
    dependency_options,
    label_options,
    require_seat_count,
    samples_option,
    schedule_options,
    seat_options,
    with_plan,
)
from node.cli.follow import follow_task
from node.cli.options import apply_options, options
from node.cli.references import short
from node.cli.runs import RUN, show_outcome
from node.cli.session import Session, asks_node
from node.cli.tasks import TASK, announce, schedule_text, task_view
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


class _Port(click.IntRange):
    """A port number; names of services are refused, because they differ between hosts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            range_ = f"{self.min} to {self.max}"
            self.fail(f"{value!r} is not a port; write a number, {range_}", param, ctx)


_DURATIONS = frozenset({"interval", "timeout", "duration", "omit", "each", "wait"})
_NO_FIELDS = frozenset({"hosts", "continuous"})
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


_SPEC_NAMES = {"packet_timeout": "timeout", "packet_wait": "wait", "ask": "server"}
"""Fields of specs by the parameters of their options, where the command has one of that name."""

_FIELDS: dict[str, tuple[str, ...]] = {}
"""By test, the parameters of its shortcut that are fields of its spec."""

_wait_option = click.option(
    "--wait/--no-wait",
    default=True,
    help="Follow the first run to its end, or only create the task. Default: follow.",
)


def _shortcut(
    test: str,
    argument: Callable[[Any], Any],
    *tables: str,
    adapt: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
    contexts: bool = False,
    more: str = "",
    types: Mapping[str, click.ParamType[Any]] | None = None,
) -> click.Command:
    """Return the command that measures a test once, or as often as the options of any task say.

    ``argument`` and the options in ``tables``, with ``types``, are those of the test; ``adapt``
    makes fields of their values. ``contexts``: the command has ``--context``. ``more`` is the help
    behind the sentence of the help page.
    """

    async def measure(session: Session, /, **given: Any) -> int:
        return await _measure(session, test, adapt(given))

    own = options("\n".join(map(cleandoc, tables)), types)
    of_schedule = (schedule_options, samples_option, dependency_options)
    shared = (_wait_option, *of_schedule, label_options)
    seats = (context_option, seat_options) if contexts else (seat_options,)
    command = click.command(test, cls=_Shortcut, help=f"{COMMANDS[test][1]}\n\n{more}".strip())(
        apply_options(asks_node(measure), argument, own, *shared, *seats)
    )
    plain = click.command(test)(apply_options(lambda: None, argument, own))
    _FIELDS[test] = tuple(each.name for each in plain.params if each.name)
    return command


_host_argument = click.argument("dest", metavar="HOST")
_hosts_argument = click.argument("hosts", metavar="[A] B", nargs=-1, required=True)
_PORT = _Port(1, 65535)
_SOURCE = "--source NODE  The node that measures [this one]."
_UDP_PORT = "--port PORT  UDP port of B [assigned by B]."
_OWAMP = "--owamp as responder=owamp  B is no node and runs OWAMP (owampd); --port is TCP's [861]."
_HOPS = "--hops 1..64 as hops_max  Maximum number of hops [30]."
_INSECURE = "--insecure as verify=false  Trust any certificate."
_ADDRESS = """
    -4 as ip_version=4  Over IPv4.
    -6 as ip_version=6  Over IPv6.
"""
_STREAM = """
    --duration DURATION  How long a run lasts [1h].
    --each DURATION      How long the interval of one result is [1m].
    --continuous         Repeat run after run, without gaps.
"""


def _packets(count: int, interval: str, length: int) -> str:
    """Return the options of a test that sends numbered packets, with the defaults of that test."""
    return f"""
        --count 1..                Number of packets [{count}].
        --interval DURATION        Time from packet to packet [{interval}].
        --packet-timeout DURATION  A later packet counts as lost [1s].
        --length INTEGER           Bytes in each packet [{length}].
    """


def _within(what: str, default: str) -> str:
    """Return the option of the timeout of a test; ``--timeout`` already limits the command."""
    return f"--within DURATION as packet_timeout  {what} [{default}]."


def _without_congestion_over_udp(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is given unchanged.

    :raises click.UsageError: it has a congestion control for UDP.
    """
    if given["protocol"] == "udp" and given["congestion"]:
        raise click.UsageError("UDP has no congestion control; remove --congestion or --udp")
    return given


def _headers(lines: tuple[str, ...]) -> dict[str, str] | None:
    """Return the values of headers written as ``NAME: VALUE``, by name; None if none is given."""
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise click.UsageError(f"{line!r} is not a header; write 'Accept: text/html'")
        headers[name.strip()] = value.strip()
    return headers or None


rtt = _shortcut(
    "rtt",
    _host_argument,
    _SOURCE,
    _packets(10, "200ms", 56),
    "--ttl 1..255  Hop limit [the host's].",
    _ADDRESS,
    contexts=True,
)
latency = _shortcut(
    "latency",
    _hosts_argument,
    _packets(100, "100ms", 44),
    _UDP_PORT,
    _OWAMP,
    _ADDRESS,
    contexts=True,
    types={"PORT": _Port(1024, 65535)},
)
throughput = _shortcut(
    "throughput",
    _hosts_argument,
    """
    --duration DURATION        How long to measure, whole seconds [10s].
    --omit DURATION            Time to leave out at the start [a fifth, at most 2s].
    --udp as protocol=udp      UDP instead of TCP.
    --streams 1..64            Number of parallel streams [1].
    --rate RATE as rate_bps    Per stream, such as 50M [all; UDP 1M].
    --congestion TEXT          TCP's congestion control, or host [cubic].
    --reverse as reverse=true  B sends to A.
    --window-bytes INTEGER     Size of the socket buffers [the kernel's choice].
    --single-ended as single_ended=true  B is no node: its server of iperf3 runs already.
    --port PORT                The port of that server [5201].
    """,
    _ADDRESS,
    adapt=_without_congestion_over_udp,
    contexts=True,
    types={"RATE": _Rate(), "PORT": _PORT},
)
latencybg = _shortcut(
    "latencybg",
    _hosts_argument,
    _STREAM,
    """
    --interval DURATION        Time from packet to packet [100ms].
    --packet-timeout DURATION  A later packet counts as lost [1s].
    --length INTEGER           Bytes in each packet [44].
    """,
    _UDP_PORT,
    _OWAMP,
    _ADDRESS,
    more="From node A (default: this one) to node B and back, with a result each minute.",
    types={"PORT": _Port(1024, 65535)},
)
interface = _shortcut(
    "interface",
    click.argument("host", metavar="[NODE]", required=False),
    "--interface NAME  The interface, such as eth0 [that of the default route].",
    _STREAM,
    more="NODE is this one by default; there is a result each minute.",
)
trace = _shortcut(
    "trace",
    _host_argument,
    _SOURCE,
    """
    --icmp as protocol=icmp  Use ICMP echo instead of UDP.
    --tcp as protocol=tcp    Use TCP SYN instead of UDP.
    --port PORT              Port for --tcp [80].
    """,
    _HOPS,
    """
    --probes 1..10                   Packets for each hop [3].
    --packet-timeout DURATION as packet_wait  A later packet counts as lost [2s].
    --length INTEGER                 Bytes of each packet [the tool's].
    --names as names=true            Look up the names of the hops.
    --as-numbers as as_numbers=true  Look up the networks (AS numbers) of the hops.
    """,
    _ADDRESS,
    contexts=True,
    types={"PORT": _PORT},
)
mtu = _shortcut(
    "mtu",
    _host_argument,
    _SOURCE,
    """
    --max INTEGER as mtu_max_bytes  Largest size to try [the interface's MTU].
    --packet-timeout DURATION as packet_wait  A later packet counts as lost [1s].
    """,
    _HOPS,
    _ADDRESS,
    contexts=True,
)
dns = _shortcut(
    "dns",
    click.argument("name"),
    "--type TYPE  Record type: A, AAAA, MX, TXT, PTR and others [A].",
    _SOURCE,
    """
    --ask HOST                 The server to ask [the node's resolvers].
    --port PORT                The server's port [53; 853 with --tls, 443 with --https].
    --tcp as protocol=tcp      Use TCP instead of UDP.
    --tls as protocol=tls      Use TLS (DoT).
    --https as protocol=https  Use HTTPS (DoH).
    --path PATH                The path of the server's URL, with --https [/dns-query].
    --server-name NAME         The name in the server's certificate [the server].
    """,
    _INSECURE,
    """
    --dnssec as dnssec=true  Request signatures.
    --tries 1..10            Maximum number of tries [3].
    """,
    _within("Timeout of each try", "2s"),
    """
    --expect VALUE as expected  An address or text that the answer must have.
    --rcode TEXT                The code the answer must have [NOERROR].
    """,
    _ADDRESS,
    adapt=lambda given: {**given, "type": given["type"] and given["type"].upper()},
    types={"PORT": _PORT},
)
http = _shortcut(
    "http",
    click.argument("url"),
    _SOURCE,
    """
    --head as method=HEAD                 Use HEAD instead of GET.
    --header 'NAME: VALUE'... as headers  A header to send; repeat for more.
    --redirects 0..20                     Maximum number of redirects [5].
    --status 100..599                     Required status [below 400].
    --text TEXT                           A text that the body must have.
    """,
    _INSECURE,
    "--bytes-max 1..  Maximum bytes to read of the body [1000000].",
    _within("Timeout of the whole request", "10s"),
    _ADDRESS,
    adapt=lambda given: {**given, "headers": _headers(given["headers"])},
)
tcp = _shortcut(
    "tcp",
    lambda command: _host_argument(click.argument("port", type=_PORT)(command)),
    _SOURCE,
    """
    --count 1..1000      Number of connections [3].
    --interval DURATION  Time from one to the next [500ms].
    """,
    _within("Timeout of each connection", "3s"),
    "--banner as banner=true  Wait for what HOST sends first.",
    _ADDRESS,
)
tls = _shortcut(
    "tls",
    _host_argument,
    "--port PORT  The TCP port [443].",
    _SOURCE,
    """
    --server-name NAME      The name in the certificate [HOST].
    --days 0.. as days_min  Days it must have left [0].
    """,
    _INSECURE,
    "--alpn TEXT...  Offer this protocol, such as h2.",
    _within("Timeout of the whole request", "10s"),
    _ADDRESS,
    adapt=lambda given: {**given, "alpn": list(given["alpn"]) or None},
    types={"PORT": _PORT},
)
ntp = _shortcut(
    "ntp",
    _host_argument,
    "--port PORT  The server's UDP port [123].",
    _SOURCE,
    """
    --count 1..100             Packets [4].
    --interval DURATION        Time from packet to packet, at least 1s [2s].
    --packet-timeout DURATION  A later packet counts as lost [1s].
    """,
    _ADDRESS,
    types={"PORT": _PORT},
)
clock = _shortcut(
    "clock",
    _hosts_argument,
    """
    --count 1..1000            Packets [20].
    --interval DURATION        Time from packet to packet [100ms].
    --packet-timeout DURATION  A later packet counts as lost [1s].
    """,
    _UDP_PORT,
    _ADDRESS,
    types={"PORT": _Port(1024, 65535)},
)


def _ends(hosts: Sequence[str]) -> dict[str, str]:
    """Return source and dest of ``[A] B``; no source, which is this node, if only B is given.

    :raises click.UsageError: there are more than two.
    """
    if len(hosts) > len(("source", "dest")):
        raise click.UsageError(f"at most two hosts can be given, not {len(hosts)}")
    return dict(zip(("dest", "source"), reversed(hosts), strict=False))


def spec_of(test: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec that the options describe; it has only the fields that were given."""
    given = {**given, **_ends(given.get("hosts") or ())}
    values = {
        _SPEC_NAMES.get(name, name): given[name]
        for name in ("source", "dest", *_FIELDS[test])
        if name not in _NO_FIELDS and given.get(name) is not None
    }
    return {
        name: times.format_duration(value) if name in _DURATIONS else value
        for name, value in values.items()
    }


def continuous_options(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace ``--continuous`` by a ``--repeat`` as long as a run lasts.

    :raises click.UsageError: ``--repeat`` or ``--cron`` is given as well.
    """
    if not given.get("continuous"):
        return given
    if given["repeat"] is not None or given["cron"]:
        raise click.UsageError("--continuous repeats by itself; remove --repeat and --cron")
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
