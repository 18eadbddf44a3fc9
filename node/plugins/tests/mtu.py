"""The largest packet that gets unfragmented from one participant to any host. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from node.model.times import SECOND
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Merged, Metric, Part, Result
from node.plugins.fields import IpVersion, between, duration_field
from node.plugins.figures import metric
from node.plugins.single_participant import LoneTestOfDest, merged

MTU_LEAST_BYTES = 68
"""RFC 791: what every IPv4 link carries; IPv6's least is 1280 (RFC 8200)."""
MTU_MOST_BYTES = 65_535

_Bytes = Annotated[int, Field(ge=1, le=MTU_MOST_BYTES)]


class MtuSpec(Document):
    """Whither, and what to try."""

    source: Host | None = Field(
        default=None, description="The host that asks; left out, the lead itself."
    )
    dest: Host = Field(description="The host at the end of the path; any host, not only a node.")
    mtu_max_bytes: int | None = Field(
        default=None,
        ge=1280,
        le=MTU_MOST_BYTES,
        strict=True,
        description="The largest packet to try, with all headers; left out, what this host's own "
        "interface takes.",
    )
    wait: Annotated[Duration, between(SECOND, 10 * SECOND)] = duration_field(
        SECOND, "A packet not answered after this is lost, PT1S to PT10S."
    )
    hops_max: int = Field(
        default=30, ge=1, le=64, strict=True, description="How many hops to try, if hop by hop."
    )
    ip_version: IpVersion | None = Field(
        default=None, description="4 or 6; left out, what dest's address is."
    )


class MtuLimit(Document):
    """Somebody who said that longer packets do not fit."""

    address: Annotated[str, Field(max_length=100)] | None = Field(
        description="Who said so; null is the host that asks: its own interface, or what it still "
        "remembers of the path."
    )
    mtu_bytes: _Bytes = Field(description="What fits, in bytes.")


class MtuResult(Document):
    """The largest packet that fits, and by whose word."""

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
        max_length=100, description="Who said that longer packets do not fit, in order."
    )
    black_hole: bool | None = Field(
        description="Whether longer packets vanish without a word, so that connections hang; null "
        "where the tool cannot tell."
    )


class MtuTest(LoneTestOfDest):
    """The path's maximum transmission unit."""

    name = "mtu"
    title = "Largest packet on the path"
    example: Mapping[str, Any] = MappingProxyType({"dest": "192.0.2.7"})
    spec_model: type[Document] = MtuSpec
    result_model: type[Document] = MtuResult

    def merge(self, spec: MtuSpec, parts: Sequence[Part]) -> Merged:  # noqa: ARG002 - contract
        """The one part is the result; it is a failure, too, if dest never answered."""
        return merged(parts, MtuResult, _silence)

    def summary(self, result: Result) -> str:
        """``1400 bytes to 192.0.2.1, limited by 192.0.2.9``."""
        found = MtuResult.model_validate(result)
        to = found.address if found.reached else f"{found.confirmed_to or 'no hop'} only"
        text = f"{found.mtu_bytes} bytes to {to}"
        # The first to name the limit; this host itself does so for its interface.
        by = [each for each in found.limits if each.mtu_bytes == found.mtu_bytes]
        if by and by[0].address is not None:
            text += f", limited by {by[0].address}"
        return f"{text}, longer ones vanish silently" if found.black_hole else text

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """The largest packet."""
        found = MtuResult.model_validate(result)
        return (
            *metric("mtu_bytes", found.mtu_bytes, "bytes"),
            *metric("reached", float(found.reached), "1"),
        )


def _silence(result: MtuResult) -> str | None:
    """That dest never answered; None if it did."""
    if result.reached:
        return None
    far = result.confirmed_to or "no hop"
    return f"{result.address} did not answer; {result.mtu_bytes} bytes pass as far as {far}"


TEST = MtuTest()
