"""The judgement of checks between two nodes: a sentence, a cause, and the next command. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from node.model import times
from node.model.wire.checks import Check, CheckState, PeerFacts
from node.model.wire.host_limits import GrantedLimits

PROBE_TIME = 5 * times.SECOND
"""Longest time for which a probe of a port is open."""

_BUSY = 1.0
"""Processes per processor from which a host counts as busy."""
SYNCHRONISATION = "timedatectl timesync-status || chronyc tracking"
"""Shows how the clock of a host is kept."""
_BUSIEST = "ps -eo pcpu,args --sort=-pcpu | head"
_STATUS = "parley status"
_LIMITS = "parley limits show"
_OPEN = "nft 'add rule inet filter input meta l4proto {{ tcp, udp }} th dport {} accept'"
_COMMANDS = re.compile(
    "|".join(
        [
            *map(re.escape, (SYNCHRONISATION, _BUSIEST, _STATUS, _LIMITS)),
            re.escape(_OPEN.format("PORTS")).replace("PORTS", r"[0-9]{1,5}-[0-9]{1,5}"),
            r"apt install [a-z0-9][a-z0-9.+-]{0,60}",
        ]
    ),
    re.ASCII,
)
"""The commands for third hosts that another node may name."""

_SMALLEST_USUAL = 1280
"""Packets of this size pass every link that carries IPv6; less breaks much."""


def passed_check(subject: str, what: str) -> Check:
    """Return a check without a finding."""
    return Check(subject=subject, state=CheckState.OK, what=what)


def skipped_check(subject: str, why: str) -> Check:
    """Return a check that could not be made."""
    return Check(subject=subject, state=CheckState.SKIPPED, what=why)


@dataclass(frozen=True)
class ClockReading:
    """The result of an exchange: how far another clock is ahead, and how uncertain that is (µs)."""

    ahead: int
    uncertain: int


def clock_reading(sent_at: int, facts: PeerFacts, came_at: int) -> ClockReading:
    """Return how far the other clock is ahead, as NTP computes it (RFC 5905, section 8)."""
    there = facts.answered_at - facts.received_at
    ahead = (facts.received_at - sent_at + facts.answered_at - came_at) // 2
    return ClockReading(ahead, max(0, came_at - sent_at - there) // 2)


def clock_check(name: str, reading: ClockReading, limit: int) -> Check:
    """Judge the difference between this host's clock and that of another node.

    ``limit`` is the difference with which the two still plan together (µs).
    """
    size = abs(reading.ahead)
    word = "ahead of" if reading.ahead >= 0 else "behind"
    what = (
        f"the clock of {name} is {_ms(size)} {word} this one, or by up to "
        f"{_ms(reading.uncertain)} more or less"
    )
    if size - reading.uncertain <= limit:
        return passed_check("clock", what)
    return Check(
        subject="clock",
        state=CheckState.FAULT,
        what=f"{what}; nodes plan together up to {_ms(limit)} (PARLEY_CLOCK_LIMIT)",
        cause="one of the two clocks is not synchronised",
        command=SYNCHRONISATION,
    )


def _ms(duration: int) -> str:
    return f"{duration / times.MILLISECOND:.3g} ms" if duration < times.SECOND else _s(duration)


def _s(duration: int) -> str:
    return f"{duration / times.SECOND:.4g} s"


def host_check(name: str, facts: PeerFacts) -> list[Check]:
    """Judge the state of another node's host, as far as it tells."""
    checks = [load_check(facts.load, facts.processors, name)]
    if facts.clock.synchronised is False:
        checks.append(
            Check(
                subject="timekeeping",
                state=CheckState.WARNING,
                what=f"the clock of {name} is not synchronised; one-way delays cannot be trusted",
                command=SYNCHRONISATION,
                where=name,
            )
        )
    if facts.needs_attention:
        checks.append(
            Check(
                subject="host",
                state=CheckState.WARNING,
                what=f"{name} has something that needs the attention of its owner",
                command=_STATUS,
                where=name,
            )
        )
    return checks


def load_check(load: float, processors: int, name: str | None = None) -> Check:
    """Judge how busy a host is: a busy one measures itself."""
    host = "this host" if name is None else name
    what = f"{load:.3g} processes run or wait on the {processors} processors of {host}"
    if load <= _BUSY * processors:
        return passed_check("load", what)
    return Check(
        subject="load",
        state=CheckState.WARNING,
        what=f"{what}: what it measures is partly itself",
        cause="other programs, or too many measurements at once",
        command=_BUSIEST,
        where=name,
    )


@dataclass(frozen=True)
class TestTools:
    """The tools of a test, best first, each with the package that installs it, if any does."""

    test: str
    tools: Sequence[tuple[str, str | None]]


def tool_check(
    tests: Iterable[TestTools], here: Mapping[str, bool], there: Mapping[str, bool], name: str
) -> list[Check]:
    """Judge for which tests of two participants both nodes have a tool in common.

    ``here`` and ``there`` tell of each tool whether the node has it; ``name`` is the other one.
    """
    checks, common = [], []
    for each in tests:
        shared = [tool for tool, _ in each.tools if here.get(tool) and there.get(tool)]
        if shared:
            common.append(each.test)
            continue
        tool, package = each.tools[0]
        lacks_there = here.get(tool, False)
        lacking = name if lacks_there else "this node"
        checks.append(
            Check(
                subject="tools",
                state=CheckState.WARNING,
                what=f"{each.test} cannot be measured between the two: {lacking} lacks {tool}",
                cause=None if package is None else "a package is missing",
                command=None if package is None else f"apt install {package}",
                where=name if lacks_there else None,
            )
        )
    if common:
        checks.insert(0, passed_check("tools", f"both have tools for {', '.join(common)}"))
    return checks


def limit_check(granted: GrantedLimits, node: str) -> list[Check]:
    """Judge what the limits of another node allow this one, called ``node``."""
    name = granted.node
    if not granted.rules:
        return [
            Check(
                subject="limits",
                state=CheckState.FAULT,
                what=f"the limits of {name} allow this node nothing",
                cause=f"no rule of its owner is for {node}",
                command=_LIMITS,
                where=name,
            )
        ]
    used_up = [
        (rule.rule, left)
        for rule in granted.rules
        for left in rule.left
        if left.left.split(" ")[0] in {"0", "PT0S"}
    ]
    if not used_up:
        rules = ", ".join(rule.rule for rule in granted.rules)
        return [passed_check("limits", f"{name} admits tasks of this node ({rules})")]
    return [
        Check(
            subject="limits",
            state=CheckState.WARNING,
            what=f"nothing is left of {left.quota} by the rule {rule} of {name} until "
            f"{times.to_the_second(left.free_at)}",
            command=f"parley limits show {name}",
        )
        for rule, left in used_up
    ]


@dataclass(frozen=True)
class MtuFinding:
    """The largest packet on a path, in bytes; None for what is not known, with the ``fault``."""

    link: int | None
    mtu: int | None
    fault: str | None
    vanished: int | None
    told_by: str | None


def mtu_check(name: str, address: str, found: MtuFinding) -> Check:
    """Judge the largest packet that gets to another node."""
    if found.mtu is None:
        known = "" if found.link is None else f"; as far as this host knows, {found.link} bytes"
        return skipped_check(
            "mtu", f"the largest packet to {name} was not found: {found.fault}{known}"
        )
    what = f"packets of up to {found.mtu} bytes get to {name} and back in one piece"
    if found.vanished is not None:
        return Check(
            subject="mtu",
            state=CheckState.FAULT,
            what=f"{what}, and those of {found.vanished} vanish without a report",
            cause="a link on the way carries less, and a firewall drops the ICMP messages that "
            "would tell: connections hang once they send much",
            command=f"parley mtu {address}",
        )
    if found.mtu < _SMALLEST_USUAL:
        return Check(
            subject="mtu",
            state=CheckState.WARNING,
            what=f"{what}, which is little",
            cause="a tunnel within a tunnel, perhaps",
            command=f"parley mtu {address}",
        )
    limit = "" if found.told_by is None else f"; {found.told_by} tells that more is too large"
    return passed_check("mtu", what + limit)


def port_check(
    name: str, address: str, port: int, reasons: Mapping[str, str | None], ports: str
) -> list[Check]:
    """Judge whether a port of another node's tools is reached, by protocol (None if it is).

    ``ports`` are this node's own, such as ``8760-9959``: the other node's may be others.
    """
    checks = []
    for protocol, why in reasons.items():
        if why is None:
            what = f"{name} answers over {protocol} at a port of its tools ({port})"
            checks.append(passed_check("ports", what))
            continue
        checks.append(
            Check(
                subject="ports",
                state=CheckState.FAULT,
                what=f"{name} does not answer over {protocol} at {address} port {port}, which its "
                f"tools use: {why}",
                cause="a firewall there or on the way, or an address that does not lead there",
                command=_OPEN.format(ports),
                where=name,
            )
        )
    return checks


def checks_of_peer(checks: Iterable[Check], sender: str, known_by: str) -> tuple[Check, ...]:
    """Return what another node has found, with commands for its own host, or of known forms.

    Nobody shall type on a third host what a second one has made up. ``known_by`` is what is typed
    to add the sender.
    """
    return tuple(_peer_check(check, sender, known_by) for check in checks)


def _peer_check(check: Check, sender: str, known_by: str) -> Check:
    if check.where in {None, sender}:
        return check.model_copy(update={"where": sender})
    command = check.command or ""
    if _COMMANDS.fullmatch(command) or command == f"parley node add {known_by}":
        return check
    return check.model_copy(update={"command": None, "where": None})
