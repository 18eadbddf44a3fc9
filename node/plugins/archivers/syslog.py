"""``syslog``: each result as a message of RFC 5424, its JSON as the text.

Over UDP (RFC 5426), TCP with counted octets (RFC 6587, 3.4.1), or the socket of this host. What
fails is a warning, what succeeds is information. Syslog acknowledges nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from node.model import times
from node.model.wire.fields import Document, Host
from node.plugins.contracts import (
    ArchivingHost,
    Batches,
    DeliveryItem,
    DeliveryOutcome,
    DeliveryStatus,
)
from node.plugins.fields import ArchiverTimeout, duration_field
from node.plugins.transport.senders import (
    DatagramSender,
    Sender,
    SocketDestination,
    StreamSender,
    send_bytes,
)

_LOCAL_SOCKET = "/dev/log"
_FACILITIES = {
    "user": 1, "daemon": 3,
    "local0": 16, "local1": 17, "local2": 18, "local3": 19,
    "local4": 20, "local5": 21, "local6": 22, "local7": 23,
}  # fmt: skip
_WARNING, _INFORMATIONAL = 4, 6
_NOT_PRINTED = re.compile(r"[^!-~]")
_NAME_MAX = 255

Facility = Literal[
    "user", "daemon", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"
]


class SyslogSpec(Document):
    """Whom to tell, and as what."""

    transport: Literal["unix", "udp", "tcp"] = Field(
        "unix", description="How it is reached: by the socket of this host, or over the network."
    )
    path: Annotated[str, StringConstraints(pattern=r"^/[ -~]{1,106}$")] = Field(
        _LOCAL_SOCKET,
        description="For unix: the socket. Others than /dev/log must be in a directory that the "
        "node's owner allows (PARLEY_ARCHIVE_DIRECTORIES).",
    )
    host: Host = Field("127.0.0.1", description="For udp and tcp: name or address.")
    port: int = Field(514, ge=1, le=65_535, strict=True, description="For udp and tcp.")
    facility: Facility = Field("local0", description="As which it is sorted by the daemon.")
    app_name: Annotated[str, StringConstraints(pattern=r"^[!-~]{1,48}$")] = Field(
        "parley", description="The program that each line names."
    )
    size_max: int = Field(
        8_000,
        ge=480,
        le=65_000,
        strict=True,
        description="Most bytes of a message: receivers cut what is longer (rsyslog: 8,192).",
    )
    timeout: ArchiverTimeout = duration_field(
        10 * times.SECOND, "How long a batch may take; PT1S to PT2M."
    )


class SyslogArchiver:
    """Messages to a system log."""

    name = "syslog"
    title = "Send to syslog (RFC 5424)"
    ordered = False
    spec_model: type[Document] = SyslogSpec

    def label(self, spec: SyslogSpec) -> str:
        """Transport and address."""
        if spec.transport == "unix":
            return spec.path
        return f"{spec.host} port {spec.port} ({spec.transport})"

    def batches(self, spec: SyslogSpec) -> Batches:
        """A hundred at a time, which a receiver's buffer holds."""
        return Batches(100, 2_000_000, 2 * spec.timeout)

    def refusal(self, spec: SyslogSpec, host: ArchivingHost) -> tuple[str, str] | None:
        """Sockets of this host other than syslog's own are for its owner to allow."""
        path = Path(spec.path).resolve()
        allowed = [each.resolve() for each in host.directories]
        own = spec.transport != "unix" or spec.path == _LOCAL_SOCKET
        if own or any(path.is_relative_to(each) for each in allowed):
            return None
        said = f"{path} is neither {_LOCAL_SOCKET} nor in a directory of PARLEY_ARCHIVE_DIRECTORIES"
        return "path", said

    def open(self, spec: SyslogSpec, host: ArchivingHost) -> SyslogDestination:
        """Connects when it is first used."""
        return SyslogDestination(spec, self.label(spec), host.name)


class SyslogDestination(SocketDestination):
    """One log."""

    def __init__(self, spec: SyslogSpec, where: str, host: str) -> None:
        """``host`` is what messages say they come from. Nothing is connected yet."""
        super().__init__(_sender(spec), where)
        self._spec = spec
        self._host = _NOT_PRINTED.sub("-", host)[:_NAME_MAX] or "-"

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Each that is no longer than a receiver takes."""
        messages = [self.message(one) for one in batch]
        fits = [len(message) <= self._spec.size_max for message in messages]
        fitting = [message for message, fit in zip(messages, fits, strict=True) if fit]
        if self._spec.transport == "tcp":
            fitting = [b"%d %s" % (len(message), message) for message in fitting]
        outcome = await send_bytes(self.sender, fitting)
        return [
            outcome if fit else _too_long(len(message), self._spec.size_max)
            for message, fit in zip(messages, fits, strict=True)
        ]

    def message(self, one: DeliveryItem) -> bytes:
        """``<134>1 2026-12-01T12:00:00.000001Z a parley - result - {…}``."""
        severity = _INFORMATIONAL if one.succeeded else _WARNING
        priority = _FACILITIES[self._spec.facility] * 8 + severity
        head = (
            f"<{priority}>1 {times.format_instant(one.at)} {self._host} {self._spec.app_name} - "
            "result - "
        )
        return head.encode() + one.body


def _sender(spec: SyslogSpec) -> Sender:
    if spec.transport == "tcp":
        return StreamSender(spec.host, spec.port, spec.timeout)
    address = spec.path if spec.transport == "unix" else (spec.host, spec.port)
    return DatagramSender(address, spec.timeout)


def _too_long(size: int, most: int) -> DeliveryOutcome:
    said = (
        f"{size} bytes are more than the {most} of size_max; deliver less of it by a transform, "
        "such as {run: run, test: test.type, state: state, summary: summary} in JMESPath"
    )
    return DeliveryOutcome(DeliveryStatus.REFUSED, said)


ARCHIVER = SyslogArchiver()
