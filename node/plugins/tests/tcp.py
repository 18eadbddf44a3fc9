"""Connection times of a TCP port on any host, and whether connections succeed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator

from node.model.times import MILLISECOND, MINUTE, SECOND
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Metric, Result
from node.plugins.fields import (
    AnyPort,
    Connector,
    CountField,
    ForeignText,
    Fraction,
    IpVersion,
    NonNegative,
    between,
    check_packet_total,
    duration_field,
    flag_field,
    whole_field,
)
from node.plugins.figures import (
    DelayFigures,
    delay_metrics,
    delay_text,
    metric,
)
from node.plugins.outline import TargetTest

_BANNER_BYTES = 1_000


class TcpSpec(Document):
    """The connections to open: where, how often, and how long to wait."""

    source: Connector = None
    dest: Host = Field(description="The host to connect to; any host, not only a node.")
    port: AnyPort = Field(description="The TCP port of dest.")
    count: int = whole_field(3, 1, 1000, "The number of connections.")
    interval: Annotated[Duration, between(10 * MILLISECOND, MINUTE)] = duration_field(
        SECOND // 2, "The time from one attempt to the next, PT0.01S to PT1M."
    )
    timeout: Annotated[Duration, between(10 * MILLISECOND, MINUTE)] = duration_field(
        3 * SECOND,
        "An attempt that takes longer has failed, PT0.01S to PT1M; the same limit applies to"
        " resolving dest's address, and to waiting for its first bytes.",
    )
    banner: bool = flag_field(
        "Wait on one connection for the first bytes that dest sends unprompted."
    )
    ip_version: IpVersion | None = Field(
        default=None, description="4 or 6; by default the version of dest's first address."
    )

    @model_validator(mode="after")
    def _check_fields(self) -> TcpSpec:
        check_packet_total(self.count, self.interval)
        return self


class TcpFailure(Document):
    """One way in which attempts failed."""

    reason: ForeignText = Field(description="The system's message, or that there was no answer.")
    count: CountField = Field(description="The number of attempts that failed this way.")


class TcpResult(Document):
    """Connection times and failures."""

    address: ForeignText | None = Field(description="The address of dest; null if none was found.")
    attempts: CountField = Field(description="Attempts made.")
    connected: CountField = Field(description="Attempts that became a connection in time.")
    loss: Fraction = Field(description="Attempts that failed, as a fraction, 0 to 1.")
    connect_ms: DelayFigures | None = Field(
        description="From the first packet until the connection was established, in milliseconds."
    )
    name_ms: NonNegative | None = Field(
        description="Until dest's address was found, in milliseconds."
    )
    failures: tuple[TcpFailure, ...] = Field(
        max_length=20, description="How attempts failed, and how often each way."
    )
    banner: ForeignText | None = Field(description="The first line that dest sent unprompted.")
    banner_ms: NonNegative | None = Field(
        description="From the connection until dest sent its first bytes, in milliseconds."
    )
    failure: ForeignText | None = Field(description="Why nothing was tried: dest has no address.")


class TcpTest(TargetTest):
    """Connection times and failures."""

    name = "tcp"
    title = "TCP connection time"
    example: Mapping[str, Any] = {"dest": "192.0.2.7", "port": 22}
    spec_model: type[Document] = TcpSpec
    result_model: type[Document] = TcpResult
    part_models: tuple[type[Document], ...] = (TcpResult,)

    def telling(self, spec: TcpSpec) -> str | None:
        """Return ``banner``, if the result has one."""
        return "banner" if spec.banner else None

    def expected_bytes(self, spec: TcpSpec, mbps: int | None) -> int:
        """Return a banner's first bytes: connections that are only opened carry no payload."""
        return _BANNER_BYTES if spec.banner else 0

    def shortfall(self, spec: TcpSpec, result: TcpResult) -> str | None:
        """Return how the result falls short of the spec; None if it does not."""
        if result.failure is not None:
            return result.failure
        where = f"{result.address} port {spec.port}"
        if not result.connected:
            reasons = "; ".join(failure.reason for failure in result.failures)
            attempts = f" ({result.attempts} attempts)" if result.attempts > 1 else ""
            return f"no connection to {where}: {reasons}{attempts}"
        if spec.banner and result.banner_ms is None:
            return f"{where} accepted the connection and sent nothing"
        return None

    def summary(self, result: Result) -> str:
        """Return ``20.41 ms, 3 of 3 connected``."""
        figures = TcpResult.model_validate(result)
        text = f"{figures.connected} of {figures.attempts} connected"
        if figures.connect_ms is not None:
            text = f"{delay_text(figures.connect_ms.median)}, {text}"
        if figures.connected < figures.attempts and figures.failures:
            text += f" ({figures.failures[0].reason})"
        return f"{text}, says {figures.banner[:60]}" if figures.banner else text

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return connection times, and the share of attempts that failed."""
        figures = TcpResult.model_validate(result)
        return (
            *delay_metrics("connect", figures.connect_ms),
            *metric("loss", figures.loss, "1"),
            *metric("name_ms", figures.name_ms, "ms"),
            *metric("banner_ms", figures.banner_ms, "ms"),
        )


TEST = TcpTest()
