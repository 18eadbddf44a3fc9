"""``syslog``: each result as a message of RFC 5424, with its JSON as the text.

Sent over UDP (RFC 5426), TCP with counted octets (RFC 6587, 3.4.1), or the socket of this host. The
severity of failed runs is warning, that of others informational. Syslog acknowledges nothing.
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
    DeliveryItem,
    DeliveryOutcome,
)
from node.plugins.fields import ArchiverTimeout, whole_field
from node.plugins.transport.batches import OwnArchiver, deliver_possible, timeout_field
from node.plugins.transport.senders import (
    DatagramSender,
    Sender,
    SocketDestination,
    StreamSender,
)

_LOCAL_SOCKET = "/dev/log"
_FACILITIES = {
    "user": 1, "mail": 2, "daemon": 3, "auth": 4, "syslog": 5, "lpr": 6, "news": 7,
    "uucp": 8, "cron": 9,
    "local0": 16, "local1": 17, "local2": 18, "local3": 19,
    "local4": 20, "local5": 21, "local6": 22, "local7": 23,
}  # fmt: skip
_SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_NOT_PRINTED = re.compile(r"[^!-~]")
_NAME_MAX = 255

Severity = Literal["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"]
Facility = Literal[
    "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron",
    "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
]  # fmt: skip


class SyslogSpec(Document):
    """The log daemon, and the form of the messages."""

    transport: Literal["unix", "udp", "tcp"] = Field(
        "unix", description="The transport: the socket of this host, or the network."
    )
    path: Annotated[str, StringConstraints(pattern=r"^/[ -~]{1,106}$")] = Field(
        _LOCAL_SOCKET,
        description="For unix: the socket. Others than /dev/log must be in a directory that the "
        "node's owner allows (PARLEY_ARCHIVE_DIRECTORIES).",
    )
    host: Host = Field("127.0.0.1", description="For udp and tcp: name or address.")
    port: int = whole_field(514, 1, 65_535, "For udp and tcp.")
    facility: Facility = Field("local0", description="The facility of the messages.")
    severity: Severity | None = Field(
        None, description="The severity; by default info, and warning for runs that failed."
    )
    app_name: Annotated[str, StringConstraints(pattern=r"^[!-~]{1,48}$")] = Field(
        "parley", description="The program name in each message."
    )
    size_max: int = whole_field(
        8_000,
        480,
        65_000,
        "Maximum bytes of a message: receivers truncate longer ones (rsyslog: 8,192).",
    )
    timeout: ArchiverTimeout = timeout_field("a batch", 10)


class SyslogDestination(SocketDestination):
    """The log to which messages are sent."""

    def __init__(self, spec: SyslogSpec, host: ArchivingHost, where: str) -> None:
        """Store the arguments; messages name the host. Nothing is connected yet."""
        super().__init__(_sender(spec), where)
        self._spec = spec
        self._host = _NOT_PRINTED.sub("-", host.name)[:_NAME_MAX] or "-"

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Send each message that is not too long for a receiver, and refuse the others."""
        messages = [self.message(item) for item in batch]
        return await deliver_possible(messages, self._excess, self._send)

    async def _send(self, messages: Sequence[bytes]) -> list[DeliveryOutcome]:
        if self._spec.transport == "tcp":
            messages = [b"%d %s" % (len(message), message) for message in messages]
        return await self.send(messages)

    def _excess(self, message: bytes) -> str | None:
        if len(message) <= self._spec.size_max:
            return None
        return (
            f"{len(message)} bytes are more than the {self._spec.size_max} of size_max; shorten it "
            "by a transform, such as {run: run, test: test.type, state: state, summary: summary} "
            "in JMESPath"
        )

    def message(self, item: DeliveryItem) -> bytes:
        """Return ``<134>1 2026-12-01T12:00:00.000001Z a parley - result - {…}``."""
        severity = self._spec.severity or ("info" if item.succeeded else "warning")
        priority = _FACILITIES[self._spec.facility] * 8 + _SEVERITIES.index(severity)
        head = (
            f"<{priority}>1 {times.format_instant(item.at)} {self._host} {self._spec.app_name} - "
            "result - "
        )
        return head.encode() + item.body


class SyslogArchiver(OwnArchiver):
    """Sends messages to a system log."""

    name = "syslog"
    title = "Send to syslog (RFC 5424)"
    spec_model: type[Document] = SyslogSpec
    items = 100  # they fit into a receiver's buffer
    octets = 2_000_000
    attempts = 2
    destination = SyslogDestination

    def label(self, spec: SyslogSpec) -> str:
        """Return transport and address."""
        if spec.transport == "unix":
            return spec.path
        return f"{spec.host} port {spec.port} ({spec.transport})"

    def refusal(self, spec: SyslogSpec, host: ArchivingHost) -> tuple[str, str] | None:
        """Refuse sockets other than syslog's own outside the directories that the owner allows."""
        path = Path(spec.path).resolve()
        allowed = [each.resolve() for each in host.directories]
        own = spec.transport != "unix" or spec.path == _LOCAL_SOCKET
        if own or any(path.is_relative_to(each) for each in allowed):
            return None
        reason = (
            f"{path} is neither {_LOCAL_SOCKET} nor in a directory of PARLEY_ARCHIVE_DIRECTORIES"
        )
        return "path", reason


def _sender(spec: SyslogSpec) -> Sender:
    if spec.transport == "tcp":
        return StreamSender(spec.host, spec.port, spec.timeout)
    address = spec.path if spec.transport == "unix" else (spec.host, spec.port)
    return DatagramSender(address, spec.timeout)


ARCHIVER = SyslogArchiver()
