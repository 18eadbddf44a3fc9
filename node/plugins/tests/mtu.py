"""The largest packet that passes unfragmented from one participant to any host. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from node.model.times import SECOND
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Metric, Result
from node.plugins.fields import (
    Asker,
    VersionOfDest,
    between,
    duration_field,
    whole_field,
)
from node.plugins.figures import metric
from node.plugins.outline import TargetTest

MTU_LEAST_BYTES = 68
"""The packet size that every IPv4 link carries (RFC 791); for IPv6 it is 1280 (RFC 8200)."""
MTU_MOST_BYTES = 65_535

_MTU_USUAL_BYTES = 1500
_TRIES_USUAL = 20
_Bytes = Annotated[int, Field(ge=1, le=MTU_MOST_BYTES)]


class MtuSpec(Document):
    """The destination, and the packets to try."""

    source: Asker = None
    dest: Host = Field(description="The host at the end of the path; any host, not only a node.")
    mtu_max_bytes: int | None = whole_field(
        None,
        1280,
        MTU_MOST_BYTES,
        "The largest packet to try, with all headers; by default the MTU of the host's own "
        "interface.",
    )
    wait: Annotated[Duration, between(SECOND, 10 * SECOND)] = duration_field(
        SECOND, "A packet not answered after this is lost, PT1S to PT10S."
    )
    hops_max: int = whole_field(30, 1, 64, "Maximum hops, for hop-by-hop tools.")
    ip_version: VersionOfDest = None


class MtuLimit(Document):
    """A host that reported that longer packets do not fit."""

    address: Annotated[str, Field(max_length=100)] | None = Field(
        description="The reporting address; null is the asking host: its own interface, or what it "
        "has cached of the path."
    )
    mtu_bytes: _Bytes = Field(description="The reported size, in bytes.")


class MtuResult(Document):
    """The largest packet that fits, and the hosts that limit it."""

    address: str = Field(max_length=100, description="The address at the end of the path.")
    mtu_bytes: _Bytes = Field(
        description="The largest packet, with all headers, in bytes, that passes as far as "
        "confirmed_to."
    )
    reached: bool = Field(description="Whether dest itself answered packets of that size.")
    confirmed_to: Annotated[str, Field(max_length=100)] | None = Field(
        description="The last address that answered packets of that size."
    )
    limits: tuple[MtuLimit, ...] = Field(
        max_length=100, description="The hosts that reported a limit, in order."
    )
    black_hole: bool | None = Field(
        description="Whether longer packets vanish without a report, so that connections hang; "
        "null if the tool cannot tell."
    )


class MtuTest(TargetTest):
    """The path's maximum transmission unit."""

    name = "mtu"
    title = "Largest packet on the path"
    example: Mapping[str, Any] = {"dest": "192.0.2.7"}
    spec_model: type[Document] = MtuSpec
    result_model: type[Document] = MtuResult
    part_models: tuple[type[Document], ...] = (MtuResult,)

    def expected_bytes(self, spec: MtuSpec, mbps: int | None) -> int:
        """Return the packets of a search, each as large as the largest, and their answers."""
        return 2 * _TRIES_USUAL * (spec.mtu_max_bytes or _MTU_USUAL_BYTES)

    def shortfall(self, spec: MtuSpec, result: MtuResult) -> str | None:
        """Return that dest never answered; None if it did."""
        if result.reached:
            return None
        far = result.confirmed_to or "no hop"
        return f"{result.address} did not answer; {result.mtu_bytes} bytes pass as far as {far}"

    def summary(self, result: Result) -> str:
        """Return ``1400 bytes to 192.0.2.1, limited by 192.0.2.9``."""
        figures = MtuResult.model_validate(result)
        to = figures.address if figures.reached else f"{figures.confirmed_to or 'no hop'} only"
        text = f"{figures.mtu_bytes} bytes to {to}"
        # The first to name the limit; this host itself does so for its interface.
        by = [each for each in figures.limits if each.mtu_bytes == figures.mtu_bytes]
        if by and by[0].address is not None:
            text += f", limited by {by[0].address}"
        return f"{text}, longer ones vanish silently" if figures.black_hole else text

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return the largest packet, and whether dest was reached."""
        figures = MtuResult.model_validate(result)
        return (
            *metric("mtu_bytes", figures.mtu_bytes, "bytes"),
            *metric("reached", float(figures.reached), "1"),
        )


TEST = MtuTest()
