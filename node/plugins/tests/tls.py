"""A TLS connection to any host: its time, what was negotiated, and the certificates. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from node.model.times import MILLISECOND, MINUTE, SECOND
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Metric, Result
from node.plugins.fields import (
    AnyPort,
    Connector,
    CountField,
    Finite,
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
from node.plugins.participation import joined_reasons

_HANDSHAKE_BYTES = 8_000
Protocol = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9./-]{0,31}$")]
"""The name of a protocol above TLS, as IANA lists them: ``h2``, ``http/1.1``, ``smtp``."""


class TlsSpec(Document):
    """The host to connect to, and the requirements on its certificate."""

    source: Connector = None
    dest: Host = Field(description="The host to connect to; any host, not only a node.")
    port: AnyPort = Field(
        default=443, description="The TCP port of dest, where TLS begins immediately."
    )
    server_name: Host | None = Field(
        default=None,
        description="The name to request (SNI) and to expect in the certificate; by default dest.",
    )
    verify: bool = flag_field(
        "Whether the run fails if the certificate is not trusted by source's system.", default=True
    )
    days_min: int = whole_field(
        0, 0, 10_000, "The run fails if the certificate is valid for fewer days."
    )
    alpn: tuple[Protocol, ...] = Field(
        default=(), max_length=10, description="Protocols to offer above TLS, such as h2 (ALPN)."
    )
    timeout: Annotated[Duration, between(10 * MILLISECOND, MINUTE)] = duration_field(
        10 * SECOND, "The limit for everything together, PT0.01S to PT1M."
    )
    ip_version: IpVersion | None = Field(
        default=None, description="4 or 6; by default that of dest's addresses."
    )


class Certificate(Document):
    """The contents of one certificate; null where they cannot be read."""

    subject: ForeignText | None = Field(default=None, description="Its subject (RFC 4514).")
    issuer: ForeignText | None = Field(default=None, description="Who signed it (RFC 4514).")
    names: tuple[ForeignText, ...] = Field(
        default=(), max_length=100, description="Alternative names: hosts and addresses."
    )
    # Text and not instants: a certificate may be valid from 1998 on, or until 9999.
    not_before: ForeignText | None = Field(
        default=None, description="The beginning of its validity (RFC 3339)."
    )
    not_after: ForeignText | None = Field(
        default=None, description="The end of its validity (RFC 3339)."
    )
    serial: ForeignText | None = Field(
        default=None, description="Its issuer's number for it, in hex."
    )
    key: ForeignText | None = Field(
        default=None, description="The kind and size of its public key."
    )
    sha256: ForeignText = Field(description="Its fingerprint: SHA-256 of its DER, in hex.")


class TlsPhases(Document):
    """The time of each step, in milliseconds; null if it was not completed."""

    name: NonNegative | None = Field(description="Resolving dest's address, in milliseconds.")
    connect: NonNegative | None = Field(description="Connecting over TCP, in milliseconds.")
    handshake: NonNegative | None = Field(description="The TLS handshake, in milliseconds.")


class TlsResult(Document):
    """The times, what was negotiated, and the certificates."""

    address: ForeignText | None = Field(description="The address connected to.")
    phases_ms: TlsPhases = Field(description="How long each step took, in milliseconds.")
    version: ForeignText | None = Field(description="The version of TLS.")
    cipher: ForeignText | None = Field(description="The cipher suite.")
    cipher_bits: CountField | None = Field(description="The length of its secret key, in bits.")
    alpn: ForeignText | None = Field(description="The protocol chosen among those offered.")
    verified: bool | None = Field(
        description="Whether source's system trusts the certificate for this name."
    )
    distrust: ForeignText | None = Field(description="Why it does not trust it.")
    name_matches: bool | None = Field(
        description="Whether the requested name is one of the certificate's (RFC 9525)."
    )
    days_left: Finite | None = Field(
        description="Days from the run's start until the certificate expires; below 0 after it."
    )
    chain: tuple[Certificate, ...] = Field(
        max_length=10, description="The certificates that the server sent, its own first."
    )
    failure: ForeignText | None = Field(description="Why the result is incomplete.")


class TlsTest(TargetTest):
    """Handshake time and certificates."""

    name = "tls"
    title = "TLS handshake and certificate"
    example: Mapping[str, Any] = {"dest": "b.example"}
    spec_model: type[Document] = TlsSpec
    result_model: type[Document] = TlsResult
    part_models: tuple[type[Document], ...] = (TlsResult,)

    def telling(self, spec: TlsSpec) -> str | None:
        """Return the certificates: they are told."""
        return "its certificates"

    def expected_bytes(self, spec: TlsSpec, mbps: int | None) -> int:
        """Return a handshake with a chain of certificates of usual length."""
        return _HANDSHAKE_BYTES

    def shortfall(self, spec: TlsSpec, result: TlsResult) -> str | None:
        """Return how the result falls short of the spec; None if it does not."""
        own = result.chain[0] if result.chain else None
        if spec.verify and result.verified is False:
            reason = f"the certificate is not trusted: {result.distrust}"
            if own is not None and result.days_left is not None and result.days_left < 0:
                reason += f" (it expired {own.not_after})"
            return joined_reasons(reason, result.failure)
        if result.failure is not None or result.phases_ms.handshake is None:
            return result.failure or "there was no handshake"
        if not spec.days_min:
            return None
        if result.days_left is None:
            return f"the certificate's expiry is unknown; {spec.days_min} days are required"
        if result.days_left < spec.days_min:
            return (
                f"the certificate has {result.days_left:.1f} days left, fewer than {spec.days_min}"
            )
        return None

    def summary(self, result: Result) -> str:
        """Return ``TLSv1.3 in 41.20 ms, 63 days left``."""
        figures = TlsResult.model_validate(result)
        if figures.phases_ms.handshake is None:
            return f"no TLS: {figures.failure or 'no handshake'}"
        text = f"{figures.version or 'TLS'} in {delay_text(figures.phases_ms.handshake)}"
        if figures.days_left is not None:
            text += f", {figures.days_left:.0f} days left"
        return text if figures.verified else f"{text}, not trusted ({figures.distrust})"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return the handshake's time, days left, and the steps before."""
        figures = TlsResult.model_validate(result)
        return (
            *metric("handshake_ms", figures.phases_ms.handshake, "ms"),
            *metric("days_left", figures.days_left, "days"),
            *metric("connect_ms", figures.phases_ms.connect, "ms"),
            *metric("name_ms", figures.phases_ms.name, "ms"),
        )


TEST = TlsTest()
