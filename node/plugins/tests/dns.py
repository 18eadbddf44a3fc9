"""One DNS question to one server: its answer, and how long that takes. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from node.model.times import MILLISECOND, MINUTE, SECOND
from node.model.wire.fields import (
    Document,
    Duration,
    Host,
    fault_of_name,
    is_absent,
    is_address,
)
from node.plugins.contracts import Metric, Result
from node.plugins.fields import (
    AnyPort,
    Asker,
    CountField,
    ForeignText,
    IpVersion,
    NonNegative,
    between,
    duration_field,
    flag_field,
    whole_field,
)
from node.plugins.figures import delay_text, metric
from node.plugins.outline import TargetTest

_QUESTION_BYTES = 60
_ANSWER_BYTES = 1232
"""The longest answer that resolvers usually accept by UDP (DNS flag day 2020)."""
RecordType = Literal[
    "A", "AAAA", "CAA", "CNAME", "DNSKEY", "DS", "HTTPS", "MX", "NAPTR", "NS", "PTR", "SOA", "SRV",
    "SSHFP", "SVCB", "TLSA", "TXT",
]  # fmt: skip
"""The types of records to query."""

Rcode = Literal["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"]
"""A server's status code of an answer."""

_LABEL = re.compile(r"[A-Za-z0-9_/-]{1,63}", re.ASCII)
_URL_PATH = re.compile(r"/[!-\"$->@-~]*", re.ASCII)
_LONGEST_NAME = 253
_PORT = 53
_CERTIFIED = {"tls": 853, "https": 443}
"""The protocols with a certificate, and their ports; over TLS port 53 is forbidden (RFC 7858)."""
_HANDSHAKE_BYTES = 6_000
_SHOWN = 3
_TEXTS = frozenset({"TXT", "CAA"})


def _check_name(value: str) -> str:
    labels = value.removesuffix(".").split(".") if value != "." else []
    if len(value) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        msg = "not a domain name: letters, digits, '-', '_' and '.' only"
        raise ValueError(fault_of_name(value) or msg)
    return value


def _check_path(value: str) -> str:
    if not _URL_PATH.fullmatch(value):
        raise ValueError("not the path of a URL; write /dns-query, without a query")
    return value


HttpPath = Annotated[
    str, StringConstraints(strict=True, max_length=256), AfterValidator(_check_path)
]
"""The path of a URL, without query and fragment."""


class DnsSpec(Document):
    """The question, the server, and the expected answer."""

    source: Asker = None
    name: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=253)] = Field(
        description="The full name to query: no search domain is added. For PTR also an address."
    )
    type: RecordType = Field(default="A", description="The type of the records to query.")
    server: Host | None = Field(
        default=None, description="The server to ask; by default source's own resolvers in turn."
    )
    port: AnyPort = Field(
        default=_PORT,
        description="The server's port; in place of 53 it is 853 for tls, and 443 for https.",
    )
    protocol: Literal["udp", "tcp", "tls", "https"] = Field(
        default="udp",
        description="The transport: udp, tcp, tls (RFC 7858), or https (RFC 8484).",
    )
    path: HttpPath | None = Field(
        default=None,
        description="The path of the server's URL, https only; by default /dns-query.",
        exclude_if=is_absent,
    )
    server_name: Host | None = Field(
        default=None,
        description="The name to request (SNI) and to expect in the certificate, tls and https"
        " only; by default server.",
        exclude_if=is_absent,
    )
    verify: bool = flag_field(
        "Whether source's system must trust the certificate; tls and https only.",
        default=True,
        later=True,
    )
    recurse: bool = flag_field("Whether the server shall recurse.", default=True)
    dnssec: bool = flag_field("Whether to request signatures (the DO bit).")
    timeout: Annotated[Duration, between(10 * MILLISECOND, MINUTE)] = duration_field(
        2 * SECOND, "How long to wait for an answer to each try, PT0.01S to PT1M."
    )
    tries: int = whole_field(3, 1, 10, "The maximum number of tries.")
    rcode: Rcode = Field(default="NOERROR", description="The code the answer must have.")
    answers_min: int = whole_field(
        1, 0, 100, "The minimum number of records of the type with NOERROR; 0 accepts none."
    )
    expected: (
        Annotated[str, StringConstraints(strict=True, min_length=1, max_length=255)] | None
    ) = Field(
        default=None,
        description="One record must be this: an address, a name, a text as in a zone file;"
        " for TXT and CAA, contain it.",
    )
    ip_version: IpVersion | None = Field(
        default=None, description="4 or 6 to the server; by default that of its addresses."
    )

    @model_validator(mode="after")
    def _check_fields(self) -> DnsSpec:
        if not (self.type == "PTR" and is_address(self.name)):
            _check_name(self.name)
        certified = self.protocol in _CERTIFIED
        if self.server is None and (certified or self.port != _PORT):
            raise ValueError(
                "source's own resolvers are asked at port 53 over udp or tcp; name the server"
                " as well"
            )
        if not certified and (self.server_name or not self.verify):
            raise ValueError(
                "only tls and https have a certificate: leave server_name and verify out"
            )
        if self.protocol != "https" and self.path is not None:
            raise ValueError("only https has a path: leave it out")
        if self.expected is not None and self.rcode != "NOERROR":
            raise ValueError(f"an answer with {self.rcode} has no record; leave out expected")
        return self

    @property
    def server_port(self) -> int:
        """The server's port."""
        return _CERTIFIED.get(self.protocol, _PORT) if self.port == _PORT else self.port


class DnsRecord(Document):
    """One record of the answer."""

    name: ForeignText | None = Field(description="Its owner name; null if it was not told.")
    type: ForeignText = Field(description="Its type.")
    ttl_s: CountField | None = Field(
        description="How long it may be cached, in seconds; null if it was not told."
    )
    value: ForeignText = Field(description="Its data, as in a zone file; a TXT without quotes.")


class DnsResult(Document):
    """The answer, and how long it took."""

    server: ForeignText | None = Field(
        description="The address of the last server asked; null if none was, or it was not told."
    )
    rcode: ForeignText | None = Field(description="The answer's code; null if there was no answer.")
    time_ms: NonNegative | None = Field(
        description="From the answered question until its answer, in milliseconds; over tcp,"
        " tls, and https including the connection and TLS."
    )
    total_ms: NonNegative = Field(description="The time of all tries, in milliseconds.")
    tries: CountField | None = Field(description="The number of tries; null if it was not told.")
    answers: tuple[DnsRecord, ...] = Field(
        max_length=100, description="The answer's records, aliases on the way included."
    )
    authoritative: bool | None = Field(description="Whether the server is authoritative (AA).")
    truncated: bool | None = Field(
        description="Whether the answer was truncated; use tcp instead (TC)."
    )
    authenticated: bool | None = Field(
        description="Whether the server says that it validated the signatures (AD)."
    )
    recursion_available: bool | None = Field(
        description="Whether the server offers recursion (RA)."
    )
    failure: ForeignText | None = Field(description="Why there is no answer.")


class DnsTest(TargetTest):
    """Answer and response time of a DNS question."""

    name = "dns"
    title = "DNS answer and its time"
    example: Mapping[str, Any] = {"name": "www.example"}
    spec_model: type[Document] = DnsSpec
    result_model: type[Document] = DnsResult
    part_models: tuple[type[Document], ...] = (DnsResult,)
    targets = ("server",)

    def target_port(self, spec: DnsSpec) -> int:
        """Return the server's port."""
        return spec.server_port

    def telling(self, spec: DnsSpec) -> str | None:
        """Return the answer: its records are told."""
        return "the answer"

    def inward(self, spec: DnsSpec) -> str | None:
        """Return what the host's own resolvers answer, unless a server is named."""
        return None if spec.server is not None else "what this host's own resolvers answer"

    def expected_bytes(self, spec: DnsSpec, mbps: int | None) -> int:
        """Return a question, an answer of the size that resolvers accept by UDP, and TLS."""
        handshake = _HANDSHAKE_BYTES if spec.protocol in _CERTIFIED else 0
        return _QUESTION_BYTES + _ANSWER_BYTES + handshake

    def shortfall(self, spec: DnsSpec, result: DnsResult) -> str | None:
        """Return how the result falls short of the spec; None if it does not."""
        if result.failure is not None or result.rcode is None:
            return result.failure or "there was no answer"
        question, server = f"{spec.name} {spec.type}", result.server or "the name server"
        if result.rcode != spec.rcode:
            expected = f" where {spec.rcode} was expected" if spec.rcode != "NOERROR" else ""
            return f"{server} answered {result.rcode} for {question}{expected}"
        if spec.rcode != "NOERROR":
            return None
        values = [record.value for record in result.answers if record.type == spec.type]
        cut = " (the answer was truncated; use tcp)" if result.truncated else ""
        if len(values) < spec.answers_min:
            records = f"{len(values)} records" if values else "no record"
            expected = f" where {spec.answers_min} were expected" if spec.answers_min > 1 else ""
            return f"{server} has {records} of {question}{expected}{cut}"
        if spec.expected is not None and not any(_matches(spec, value) for value in values):
            records = ", ".join(values[:_SHOWN])[:200] or "nothing"
            return f"{server} says {records} where {spec.expected} was expected{cut}"
        return None

    def summary(self, result: Result) -> str:
        """Return ``192.0.2.80, 192.0.2.81 in 20.41 ms``."""
        figures = DnsResult.model_validate(result)
        if figures.time_ms is None:
            return f"no answer: {figures.failure or 'no reason'}"
        values = [record.value for record in figures.answers]
        text = ", ".join(values[:_SHOWN]) or figures.rcode or "no record"
        if len(values) > _SHOWN:
            text += f" and {len(values) - _SHOWN} more"
        return f"{text[:200]} in {delay_text(figures.time_ms)}"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return the response time, the tries, and the shortest TTL."""
        figures = DnsResult.model_validate(result)
        lifetimes = (record.ttl_s for record in figures.answers if record.ttl_s is not None)
        shortest = min(lifetimes, default=None)
        return (
            *metric("time_ms", figures.time_ms, "ms"),
            *metric("total_ms", figures.total_ms, "ms"),
            *metric("tries", figures.tries, "tries"),
            *metric("answers", len(figures.answers), "records"),
            *metric("ttl_s", shortest, "s"),
        )


def _matches(spec: DnsSpec, value: str) -> bool:
    """Return whether a record has the expected value; names match without case and last dot."""
    expected = spec.expected or ""
    if spec.type in _TEXTS:
        return expected in value
    try:
        return ipaddress.ip_address(expected) == ipaddress.ip_address(value)
    except ValueError:
        return expected.lower().removesuffix(".") == value.lower().removesuffix(".")


TEST = DnsTest()
