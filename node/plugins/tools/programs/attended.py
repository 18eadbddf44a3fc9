"""Runs another program from one instant to another, and appends figures that it does not report.

``attended.py '{"argv": ["nuttcp", …], "at_ns": …, "until_ns": null, "flow": …}'`` leaves the
program's output as it is and ends it with a line of its own: an RS (RFC 7464) and a JSON document
with the clock, the congestion control that TCP used, and how the program ended.

``at_ns`` and ``until_ns`` are wall clock instants. ``flow`` is null or the program's TCP connection
whose congestion control to report: ``{"port": 5302, "own": true}``, where ``own`` says whether the
port is this end's.
"""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint

_LOOK_S = 0.05

_NETLINK_SOCK_DIAG = 4  # linux/netlink.h
_SOCK_DIAG_BY_FAMILY = 20  # linux/sock_diag.h
_REQUEST_DUMP = 0x301
_ESTABLISHED = 1 << 1
_INET_DIAG_CONG = 4  # linux/inet_diag.h
_HEADER = struct.Struct("=IHHII")
_QUESTION = struct.Struct("=BBBBI48s")
_PORTS = struct.Struct("!HH")
_ATTRIBUTE = struct.Struct("=HH")
_PORTS_AT = _HEADER.size + 4
_ATTRIBUTES_AT = _HEADER.size + 72  # after struct inet_diag_msg
_ANSWER_BYTES = 1 << 16


def main(document: str) -> int:
    """Run the program; return its exit code, or 127 if it cannot be started."""
    arguments = json.loads(document)
    stamp_endpoint.wait_until(arguments["at_ns"])
    clock = stamp_endpoint.KernelClock()
    program: subprocess.Popen[bytes] | None = None
    told_to_end = False

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler
        nonlocal told_to_end
        told_to_end = True
        if program is not None:
            program.terminate()

    # The launcher ends the whole process group; the report must be printed however soon it does.
    signal.signal(signal.SIGTERM, end)
    try:
        program = subprocess.Popen(arguments["argv"], stdin=subprocess.DEVNULL)  # noqa: S603 - an argv
    except OSError as fault:
        print(f"{arguments['argv'][0]}: {fault.strerror}", file=sys.stderr)
        return 127
    if told_to_end:
        program.terminate()
    congestion_used = _attend(program, arguments)
    report = {
        "congestion": congestion_used,
        "clock": clock.state(),
        "exit_code": program.returncode,
    }
    sys.stdout.write(f"\x1e{json.dumps(report, separators=(',', ':'))}\n")
    sys.stdout.flush()
    return program.returncode if program.returncode >= 0 else 128 - program.returncode


def _attend(program: subprocess.Popen[bytes], arguments: Mapping[str, Any]) -> str | None:
    """Wait for the program's end; return the congestion control of its flow, if it was seen."""
    until_ns, flow = arguments["until_ns"], arguments["flow"]
    name = None
    while True:
        if flow is not None and name is None:
            name = congestion(flow["port"], own=flow["own"])
        left_s = (
            None
            if until_ns is None
            else max(0.0, (until_ns - time.time_ns()) / stamp_endpoint.SECOND_NS)
        )
        looks = flow is not None and name is None
        try:
            program.wait(min(_LOOK_S, left_s or _LOOK_S) if looks else left_s)
        except subprocess.TimeoutExpired:
            if until_ns is not None and time.time_ns() >= until_ns:
                program.terminate()
                program.wait()
        if program.returncode is not None:
            return name


def congestion(port: int, *, own: bool) -> str | None:
    """Return the congestion control of a TCP connection with this port; needs no privilege."""
    for family in (socket.AF_INET, socket.AF_INET6):
        for message in _connection_messages(family):
            source, dest = _PORTS.unpack_from(message, _PORTS_AT)
            name = _attribute(message, _INET_DIAG_CONG)
            if name is not None and port == (source if own else dest):
                return name.rstrip(b"\0").decode("ascii", "replace")
    return None


def _connection_messages(family: int) -> list[bytes]:
    """Return the kernel's message for each established connection; empty if it sends none."""
    wanted = 1 << (_INET_DIAG_CONG - 1)
    question = _QUESTION.pack(family, socket.IPPROTO_TCP, wanted, 0, _ESTABLISHED, bytes(48))
    length = _HEADER.size + len(question)
    header = _HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
    messages: list[bytes] = []
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(1)
            kernel.send(header + question)
            while True:
                answer, at = kernel.recv(_ANSWER_BYTES), 0
                while at + _HEADER.size <= len(answer):
                    length, kind, _, _, _ = _HEADER.unpack_from(answer, at)
                    if kind != _SOCK_DIAG_BY_FAMILY or length < _ATTRIBUTES_AT:
                        return messages
                    messages.append(answer[at : at + length])
                    at += -(-length // 4) * 4
    except OSError:
        return messages


def _attribute(message: bytes, wanted: int) -> bytes | None:
    at = _ATTRIBUTES_AT
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if length < _ATTRIBUTE.size:
            return None
        if kind == wanted:
            return message[at + _ATTRIBUTE.size : at + length]
        at += -(-length // 4) * 4
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
