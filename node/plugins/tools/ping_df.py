"""The largest packet on a path, found by pings that must not be fragmented (the DF bit). Pure.

Our own program, ``programs/mtu_search.py``, starts them and bisects the range. Dest itself answers
each size with a packet of the same size, so the result holds for both ways; sizes that vanish
without a report are found as well. Limits that the kernel has cached for the path (for ten minutes)
are not tried again; this version of ping cannot prevent that.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.model.wire.fields import Document
from node.plugins import iputils
from node.plugins.binding import EITHER, source_arguments
from node.plugins.contracts import Command, Output, PartContext, Requirement, Result
from node.plugins.hops import address_in
from node.plugins.outline import ClientTool
from node.plugins.ownprograms import MICROSECOND_NS, measured_output, own_program
from node.plugins.tests.mtu import (
    MTU_LEAST_BYTES,
    MTU_MOST_BYTES,
    MtuLimit,
    MtuResult,
    MtuSpec,
)

_SET_UP = 300 * MILLISECOND
_WRAP_UP = SECOND // 2
_LOOK_UP = SECOND
_START = 50 * MILLISECOND  # of each ping
_INTERVAL = 200 * MILLISECOND
_TRIES = 5
"""Tries per size: with a loss of 10 % each way, one size in 4,000 is wrongly considered lost."""

_Bytes = Annotated[int, Field(ge=1, le=MTU_MOST_BYTES)]
_Told = tuple[Annotated[str, Field(max_length=100)] | None, Annotated[int, Field(ge=0, le=999_999)]]


class _Output(Document):
    address: str = Field(max_length=100)
    mtu: _Bytes
    limits: tuple[_Told, ...] = Field(max_length=100)
    vanished: _Bytes | None


class PingDfTool(ClientTool):
    """Pings with the DF bit, by our own program."""

    name = "ping-df"
    tests: tuple[str, ...] = ("mtu",)
    preference = 1
    binds = EITHER
    requirement: Requirement | None = iputils.PING
    tried: tuple[str, ...] = iputils.TRIED

    def duration(self, spec: MtuSpec) -> int:
        """Return the time if every size vanishes, the smallest included, in microseconds."""
        sizes = 1 + (_largest_size(spec) - MTU_LEAST_BYTES).bit_length()
        # One packet, and if it is lost, all others back to back.
        each = 2 * (_START + spec.wait) + (_TRIES - 2) * _INTERVAL
        return _SET_UP + _LOOK_UP + sizes * each + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Return our own program."""
        spec: MtuSpec = part.spec
        arguments = {
            "host": part.addresses.get(spec.dest, spec.dest),
            **source_arguments(part),
            "most": _largest_size(spec),
            "wait_s": spec.wait / SECOND,
            "tries": _TRIES,
            "first_ns": part.starts * MICROSECOND_NS,
        }
        return own_program("mtu_search.py", arguments)

    def read(self, part: PartContext, output: Output) -> Result:
        """Read the largest packet that dest answered, and the reported limits.

        :raises ToolOutputError: the program says that it could not measure, or the output is wrong.
        """
        document = measured_output(output, "ping-df", _Output)
        vanished = document.vanished
        if document.mtu > _largest_size(part.spec) or (
            vanished is not None and vanished <= document.mtu
        ):
            raise ToolOutputError(f"ping-df contradicts itself: {document.mtu} bytes pass")
        address = address_in(document.address, "ping-df")
        limits = tuple(
            MtuLimit(address=who and address_in(who, "ping-df"), mtu_bytes=mtu)
            for who, mtu in document.limits
            if 0 < mtu <= MTU_MOST_BYTES
        )
        return MtuResult(
            address=address,
            mtu_bytes=document.mtu,
            reached=True,
            confirmed_to=address,
            limits=limits,
            black_hole=vanished is not None,
        ).model_dump(mode="json")


def _largest_size(spec: MtuSpec) -> int:
    return MTU_MOST_BYTES if spec.mtu_max_bytes is None else spec.mtu_max_bytes


TOOL = PingDfTool()
