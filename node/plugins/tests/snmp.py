"""Rates and utilisation of an interface of a router or switch, as its agent tells by SNMP. Pure.

Agents count for ever; a rate is the difference of two readings over the time between them. What the
difference can be is decided here (RFC 2863): counters of 64 bits (``ifHC…``) go before those of 32,
which wrap, within seconds on a fast link. A restart of the agent, or a new discontinuity time of
the interface, makes both readings strangers to each other. A counter that went back, or grew by
more than twice what the interface's speed allows, tells nothing. Such figures are null, with a note
that names them. Agents may answer from a cache some seconds old, so that figures of a short run can
be off by that much; this is why twice the speed is not yet absurd.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Strict, StringConstraints, model_validator

from node.model.times import HOUR, MILLISECOND, SECOND
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Metric, Result
from node.plugins.fields import (
    NAMED_SECRET,
    AnyPort,
    Asker,
    CountField,
    ForeignText,
    Fraction,
    IpVersion,
    NonNegative,
    SecretText,
    between,
    duration_field,
)
from node.plugins.figures import metric, percent_text, rate_text
from node.plugins.outline import TargetTest
from node.plugins.plausibility import RATE_MAX_BPS, Notes, Sieve

_PLAIN = re.compile(r"[!#-\[\]-~]{1,64}")
"""Quotation marks, backslashes and spaces have meanings in the files of SNMP's programs."""


def _check_credential(value: str) -> str:
    if not _PLAIN.fullmatch(value):  # it is not told what was written
        raise ValueError("is none: give 1 to 64 ASCII characters without spaces, '\"' and '\\'")
    return value


Credential = Annotated[str, Strict(), AfterValidator(_check_credential)]
_Word = Annotated[str, StringConstraints(pattern=r"^[!#-\[\]-~]{1,32}$", strict=True)]
InterfaceWord = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:/@-]{0,62}$", strict=True)
]
STATUS = (
    "up", "down", "testing", "unknown", "dormant", "not-present", "lower-layer-down",
)  # fmt: skip
"""The words of ifOperStatus, which begins with 1."""
_USER_VERSION = "3"
_WRAPS = 2**32
_TICKS_PER_S = 100
_ABSURD = 2
_LEAST_PACKET_BYTES, _CACHED = 20, 100_000
"""Bytes of a packet at least, and those by which counters of one answer may be of another time."""

Reading = Mapping[str, int | str | None]
"""The values of an agent at one time, by the names of :data:`COLUMNS`; None is what it lacks."""

COLUMNS: Mapping[str, str] = {
    "name": "31.1.1.1.1",
    "speed": "2.2.1.5",
    "status": "2.2.1.8",
    "high_speed": "31.1.1.1.15",
    "discontinuity": "31.1.1.1.19",
    "received_bytes": "31.1.1.1.6",
    "received_unicast": "31.1.1.1.7",
    "received_multicast": "31.1.1.1.8",
    "received_broadcast": "31.1.1.1.9",
    "received_bytes_32": "2.2.1.10",
    "received_drops": "2.2.1.13",
    "received_errors": "2.2.1.14",
    "sent_bytes": "31.1.1.1.10",
    "sent_unicast": "31.1.1.1.11",
    "sent_multicast": "31.1.1.1.12",
    "sent_broadcast": "31.1.1.1.13",
    "sent_bytes_32": "2.2.1.16",
    "sent_drops": "2.2.1.19",
    "sent_errors": "2.2.1.20",
}
"""The columns of IF-MIB's tables that are read, below 1.3.6.1.2.1."""


class SnmpSpec(Document):
    """The interface to read, with whom to ask, and the time between the two readings."""

    source: Asker = None
    dest: Host = Field(description="The router or switch; any host whose agent speaks SNMP.")
    port: AnyPort = Field(default=161, description="The UDP port of its agent.")
    interface: InterfaceWord = Field(
        description="The name of the interface as the agent has it: ifName, or else ifDescr. Its"
        " number is looked up for each run, since agents number their interfaces anew."
    )
    version: Literal["2c", "3"] = Field(default="2c", description="The version of SNMP.")
    user: _Word | None = Field(default=None, description="The user of SNMPv3.")
    authentication: Literal["MD5", "SHA", "SHA-224", "SHA-256", "SHA-384", "SHA-512"] = Field(
        default="SHA-256", description="How messages of SNMPv3 are authenticated."
    )
    privacy: Literal["DES", "AES", "AES-192", "AES-256"] = Field(
        default="AES", description="How messages of SNMPv3 are encrypted."
    )
    credentials: dict[Literal["community", "authentication", "privacy"], SecretText[Credential]] = (
        Field(
            default={},
            description='Each {"secret": "NAME"}, from the store of the owner of the host that'
            " asks: the community of SNMPv2c (public by default), or the passphrases of SNMPv3,"
            " without which messages are neither authenticated nor encrypted.",
            json_schema_extra=NAMED_SECRET,
        )
    )
    duration: Annotated[Duration, between(SECOND, HOUR)] = duration_field(
        10 * SECOND, "The time from the first reading to the second one, PT1S to PT1H."
    )
    timeout: Annotated[Duration, between(200 * MILLISECOND, 30 * SECOND)] = duration_field(
        2 * SECOND, "The limit for each answer; a question is repeated once, PT0.2S to PT30S."
    )
    ip_version: IpVersion | None = Field(
        default=None, description="4 or 6; by default the version of dest's address."
    )

    @model_validator(mode="after")
    def _check_fields(self) -> SnmpSpec:
        if self.version == _USER_VERSION:
            if self.user is None:
                raise ValueError("SNMPv3 needs a user")
            if "community" in self.credentials:
                raise ValueError("SNMPv3 has no community; leave it out")
            if "privacy" in self.credentials and "authentication" not in self.credentials:
                raise ValueError(
                    "SNMPv3 encrypts only what it authenticates; give both passphrases"
                )
        elif self.user is not None or self.credentials.keys() - {"community"}:
            raise ValueError("SNMPv2c has a community only; set version to 3 for a user")
        return self


class SnmpTraffic(Document):
    """The traffic in one direction; null is what the agent does not tell, or what cannot be."""

    rate_bps: NonNegative | None = Field(description="Bits per second.")
    utilisation: Fraction | None = Field(description="The rate as a part of the speed, 0 to 1.")
    packet_rate: NonNegative | None = Field(description="Packets per second.")
    error_rate: NonNegative | None = Field(description="Packets with errors per second.")
    drop_rate: NonNegative | None = Field(description="Dropped packets per second.")
    bytes: CountField | None = Field(description="Bytes.")
    packets: CountField | None = Field(description="Packets.")
    errors: CountField | None = Field(description="Packets with errors.")
    drops: CountField | None = Field(description="Dropped packets (discards).")


class SnmpResult(Document):
    """The traffic of an interface between two readings."""

    interface: ForeignText | None = Field(description="Its name, as the agent has it (ifName).")
    index: CountField = Field(description="Its number (ifIndex).")
    status: str = Field(max_length=20, description="Its state (ifOperStatus), such as up.")
    speed_bps: CountField | None = Field(
        description="Its speed in bits per second as the agent states it; null if it does not."
    )
    counter_bits: Literal[32, 64] = Field(description="The length of its counters of bytes.")
    duration_ms: NonNegative = Field(description="From one reading to the other, milliseconds.")
    received: SnmpTraffic = Field(description="Incoming traffic.")
    sent: SnmpTraffic = Field(description="Outgoing traffic.")
    notes: Notes = ()


class SnmpTest(TargetTest):
    """Rates and utilisation of an interface, by SNMP."""

    name = "snmp"
    title = "Rates and utilisation of an interface of a router, by SNMP"
    example: Mapping[str, Any] = {"dest": "192.0.2.1", "interface": "eth0", "duration": "PT1S"}
    spec_model: type[Document] = SnmpSpec
    result_model: type[Document] = SnmpResult
    part_models: tuple[type[Document], ...] = (SnmpResult,)

    def telling(self, spec: SnmpSpec) -> str:
        """Return the interface: results tell what only those should know whom the agent answers."""
        return "interface"

    def shortfall(self, spec: SnmpSpec, result: SnmpResult) -> str | None:
        """Return why there is no rate of either direction; None if there is one."""
        if result.received.rate_bps is not None or result.sent.rate_bps is not None:
            return None
        return result.notes[0] if result.notes else "the agent has no counters of this interface"

    def summary(self, result: Result) -> str:
        """Return ``ge-0/0/0: 12.0 Mb/s in (1.2 %), 3.10 Mb/s out (0.3 %)``."""
        figures = SnmpResult.model_validate(result)
        ways = ((figures.received, "in"), (figures.sent, "out"))
        texts = [_way_text(traffic, way) for traffic, way in ways]
        state = [] if figures.status == STATUS[0] else [figures.status]
        return f"{figures.interface or figures.index}: {', '.join([*state, *texts])}"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return rates and utilisation by direction, and the errors and drops."""
        figures = SnmpResult.model_validate(result)
        name = figures.interface or str(figures.index)
        metrics: list[Metric] = []
        for way, traffic in (("received", figures.received), ("sent", figures.sent)):
            labels = {"direction": way, "interface": name}
            metrics += metric("rate_bps", traffic.rate_bps, "bit/s", labels)
            metrics += metric("utilisation", traffic.utilisation, "1", labels)
            metrics += metric("errors", traffic.errors, "packets", labels)
            metrics += metric("drops", traffic.drops, "packets", labels)
        return tuple(metrics)


def _way_text(traffic: SnmpTraffic, way: str) -> str:
    if traffic.rate_bps is None:
        return f"{way} unknown"
    share = "" if traffic.utilisation is None else f" ({percent_text(traffic.utilisation)})"
    return f"{rate_text(traffic.rate_bps)} {way}{share}"


def result_between(index: int, first: Reading, second: Reading, took_ms: float) -> SnmpResult:
    """Return the traffic between two readings that are ``took_ms`` milliseconds apart."""
    sieve = Sieve()
    anew = _begun_anew(first, second, took_ms)
    if anew is not None:
        sieve.say(anew)
    speed = sieve.count("speed", _speed_bps(second), int(RATE_MAX_BPS))
    wide = all(_count(each, "received_bytes") is not None for each in (first, second))
    status = _count(second, "status") or 0
    name = second.get("name")
    received, sent = (
        _Direction(sieve, way, first, second, took_ms / 1000, speed).traffic(
            wide=wide, known=anew is None
        )
        for way in ("received", "sent")
    )
    return SnmpResult(
        interface=name if isinstance(name, str) else None,
        index=index,
        status=STATUS[status - 1] if 0 < status <= len(STATUS) else "unknown",
        speed_bps=speed,
        counter_bits=64 if wide else 32,
        duration_ms=round(took_ms, 3),
        received=received,
        sent=sent,
        notes=sieve.notes,
    )


def _begun_anew(first: Reading, second: Reading, took_ms: float) -> str | None:
    """Return why two readings have nothing to do with each other; None if they have."""
    before, after = (_count(each, "uptime") for each in (first, second))
    if before is None or after is None:
        return "the agent does not say since when it counts"
    ticks = took_ms * _TICKS_PER_S / 1000
    if after < before and before + 2 * ticks < _WRAPS:
        return "the agent restarted between the readings, and counts anew"
    if first.get("discontinuity") != second.get("discontinuity"):
        return "the counters of the interface began anew between the readings"
    if first.get("name") != second.get("name"):
        return "another interface had this number at the second reading"
    return None


def _speed_bps(reading: Reading) -> int | None:
    """Return the speed of an interface; ifSpeed is at its limit beyond 4.3 Gb/s."""
    if high := _count(reading, "high_speed"):
        return high * 1_000_000
    speed = _count(reading, "speed")
    return speed if speed and speed < _WRAPS - 1 else None


def _count(reading: Reading, name: str) -> int | None:
    value = reading.get(name)
    return value if isinstance(value, int) else None


@dataclass(frozen=True)
class _Direction:
    """The counters of one direction at two readings; what cannot have grown so is named."""

    sieve: Sieve
    way: str
    first: Reading
    second: Reading
    took_s: float
    speed_bps: int | None

    def traffic(self, *, wide: bool, known: bool) -> SnmpTraffic:
        """Return the traffic; none is known if the readings have nothing in common."""
        if not known:
            return SnmpTraffic(**dict.fromkeys(SnmpTraffic.model_fields))
        octets = self._long("bytes", "bytes") if wide else self._short_bytes()
        kinds = [self._long(kind, "packets") for kind in ("unicast", "multicast", "broadcast")]
        packets = self._packets(None if None in kinds else sum(kind or 0 for kind in kinds), octets)
        errors, drops = self._few("errors"), self._few("drops")
        rate_bps = _rate(octets, self.took_s, 8)
        return SnmpTraffic(
            rate_bps=rate_bps,
            utilisation=self._utilisation(rate_bps),
            packet_rate=_rate(packets, self.took_s),
            error_rate=_rate(errors, self.took_s),
            drop_rate=_rate(drops, self.took_s),
            bytes=octets,
            packets=packets,
            errors=errors,
            drops=drops,
        )

    def _packets(self, packets: int | None, octets: int | None) -> int | None:
        """Return packets, unless they would be shorter than any: some agents count them wrongly."""
        if packets is None or octets is None or packets * _LEAST_PACKET_BYTES <= octets + _CACHED:
            return packets
        self.sieve.leave_out(
            f"{self.way} packets", f"{packets} packets of {octets} bytes cannot be"
        )
        return None

    def _utilisation(self, rate_bps: float | None) -> float | None:
        """Return the share of the speed; virtual interfaces state speeds that mean nothing."""
        if rate_bps is None or self.speed_bps is None:
            return None
        if rate_bps > _ABSURD * self.speed_bps:
            stated = f"more than the speed that the agent states, {rate_text(self.speed_bps)}"
            self.sieve.leave_out(f"{self.way} utilisation", f"{rate_text(rate_bps)} is {stated}")
            return None
        return min(1.0, round(rate_bps / self.speed_bps, 6))

    def _long(self, column: str, figure: str) -> int | None:
        """Return the growth of a counter of 64 bits, which never wraps."""
        before, after = self._counts(column)
        if before is None or after is None:
            return None
        most = RATE_MAX_BPS * self.took_s / 8
        return self._grown(figure, before, after, after - before, most)

    def _short_bytes(self) -> int | None:
        """Return the growth of a counter of 32 bits, which the speed bounds."""
        before, after = self._counts("bytes_32")
        if before is None or after is None:
            return None
        if self.speed_bps is None:
            return self._grown("bytes", before, after, _wrapped(before, after), _WRAPS)
        most = self.speed_bps * self.took_s / 8
        if most >= _WRAPS:
            why = (
                "a counter of 32 bits may wrap more than once in this time; use a shorter duration"
            )
            self.sieve.leave_out(f"{self.way} bytes", why)
            return None
        return self._grown("bytes", before, after, (after - before) % _WRAPS, _ABSURD * most)

    def _few(self, figure: str) -> int | None:
        """Return the growth of a counter of 32 bits that counts what is rare."""
        before, after = self._counts(figure)
        if before is None or after is None:
            return None
        return self._grown(figure, before, after, _wrapped(before, after), _WRAPS)

    def _counts(self, column: str) -> tuple[int | None, int | None]:
        name = f"{self.way}_{column}"
        return _count(self.first, name), _count(self.second, name)

    def _grown(self, figure: str, before: int, after: int, grown: int, most: float) -> int | None:
        if 0 <= grown <= most:
            return grown
        why = (
            f"the counter went back from {before} to {after}"
            if after < before
            else f"{grown} more in {self.took_s:.3g} s cannot be"
        )
        self.sieve.leave_out(f"{self.way} {figure}", why)
        return None


def _wrapped(before: int, after: int) -> int:
    """Return the growth of a counter of 32 bits, which wraps from its upper half to the lower."""
    half = _WRAPS // 2
    return after - before + (_WRAPS if before >= half > after else 0)


def _rate(count: int | None, seconds: float, factor: int = 1) -> float | None:
    return None if count is None or seconds <= 0 else round(factor * count / seconds, 3)


TEST = SnmpTest()
