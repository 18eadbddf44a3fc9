"""The emulated WAN: a program that carries packets between network namespaces.

``python -m node.cli.lab.wan --site NAMESPACE=ADDRESS[,ADDRESS…] …`` opens the TUN device ``wan0``
in every namespace and forwards each packet to the site that has its destination address. A packet
first waits for its sender's uplink (rate, and a queue with a limit, beyond which it is dropped at
the tail), may then be lost, and arrives one delay later. Every direction has the same delay and the
same loss probability, drawn from its own seeded generator, so that directions are independent.

It prints ``ready`` when it forwards, and on TERM or INT one line of JSON with a report.

The time a packet spends here is the delay plus two wake-ups of this process, some 0.1 ms on an idle
host. The maximum lateness of packets is measured and printed: on a busy host it shows how far to
trust the delay. Being a separate program, it reads the kernel's monotonic clock itself.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import gc
import ipaddress
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

DEVICE = "wan0"
READY = b"ready\n"

_CLONE_NEWNET = 0x4000_0000
_PR_SET_TIMERSLACK = 29
_TUNSETIFF = 0x4004_54CA
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000
_SIOCGIFFLAGS = 0x8913
_IFF_UP = 0x0001
_IFF_RUNNING = 0x0040
_CARRIER_POLL_S = 0.002
_PACKET_BYTES_MAX = 65_536
_BATCH = 32  # packets read from one device before the queues are checked again


@dataclass(frozen=True)
class WanSettings:
    """The behaviour of the WAN in every direction.

    ``delay_ms`` one way; ``loss`` a probability; ``rate_mbit`` of each site's uplink, ``None``
    for unlimited; ``queue_ms`` the longest wait for the uplink.
    """

    delay_ms: float = 20.0
    loss: float = 0.0
    rate_mbit: float | None = None
    queue_ms: float = 100.0
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse impossible values, with :class:`ValueError`."""
        if not 0 <= self.delay_ms <= 10_000:  # noqa: PLR2004 - named in the message
            raise ValueError("the delay must be between 0 and 10000 ms")
        if not 0 <= self.loss <= 1:
            raise ValueError("the loss is a probability and must be between 0 and 1")
        if self.rate_mbit is not None and self.rate_mbit <= 0:
            raise ValueError("the rate must be more than 0 Mbit/s")
        if self.queue_ms < 0:
            raise ValueError("the queue must be 0 ms or longer")


@dataclass(frozen=True)
class Site:
    """One end of the WAN: a network namespace and its addresses."""

    namespace: str
    addresses: tuple[str, ...]


@dataclass
class Tally:
    """Packets of one direction: accepted, lost, and dropped at the uplink's full queue."""

    sender: str
    receiver: str
    taken: int = 0
    lost: int = 0
    tail: int = 0


@dataclass
class _Uplink:
    """A sender's link into the WAN; packets leave in order, because their delay is equal."""

    free_at: float = 0.0
    queue: deque[tuple[float, int, bytes]] = field(default_factory=deque)


class Wan:
    """The forwarding between open devices; instants are seconds of the monotonic clock."""

    def __init__(
        self, sites: Sequence[Site], devices: Sequence[int], settings: WanSettings
    ) -> None:
        """Forward between ``devices``, one descriptor per site, in the same order."""
        self.devices = list(devices)
        self.stray = 0
        self.late_s_max = 0.0
        self.tallies = {
            (i, j): Tally(one.namespace, other.namespace)
            for i, one in enumerate(sites)
            for j, other in enumerate(sites)
        }
        self._delay_s = settings.delay_ms / 1e3
        self._loss = settings.loss
        self._queue_s = settings.queue_ms / 1e3
        self._s_per_byte = 8 / (settings.rate_mbit * 1e6) if settings.rate_mbit else 0.0
        self._uplinks = [_Uplink() for _ in sites]
        self._sites = {
            ipaddress.ip_address(address).packed: index
            for index, site in enumerate(sites)
            for address in site.addresses
        }
        # Per direction, so that traffic elsewhere does not change which packets are lost here.
        self._dice = {
            direction: random.Random(f"{settings.seed}/{direction}") for direction in self.tallies
        }

    def take(self, sender: int, packet: bytes, now: float) -> None:
        """Accept a packet into the WAN, or drop it."""
        receiver = self._sites.get(_destination(packet))
        if receiver is None:
            self.stray += 1  # the kernel's own multicast, mostly
            return
        tally = self.tallies[sender, receiver]
        tally.taken += 1
        uplink = self._uplinks[sender]
        starts = max(now, uplink.free_at)
        if starts - now > self._queue_s:
            tally.tail += 1
            return
        uplink.free_at = starts + len(packet) * self._s_per_byte
        if self._loss and self._dice[sender, receiver].random() < self._loss:
            tally.lost += 1
            return
        uplink.queue.append((uplink.free_at + self._delay_s, self.devices[receiver], packet))

    def release(self, now: float) -> float | None:
        """Write out the due packets; return when the next one is due, if there is one."""
        following = None
        for uplink in self._uplinks:
            queue = uplink.queue
            while queue and queue[0][0] <= now:
                due, device, packet = queue.popleft()
                self.late_s_max = max(self.late_s_max, now - due)
                with contextlib.suppress(OSError):  # the interface is down
                    os.write(device, packet)
            if queue and (following is None or queue[0][0] < following):
                following = queue[0][0]
        return following

    def forward(self) -> None:
        """Forward forever; a signal's exception ends it."""
        clock = time.monotonic
        while True:
            due = self.release(clock())
            wait = None if due is None else max(0.0, due - clock())
            # select and not epoll: the latter's timeout is in whole milliseconds
            readable, _, _ = select.select(self.devices, [], [], wait)
            for device in readable:
                sender = self.devices.index(device)
                with contextlib.suppress(BlockingIOError):
                    for _ in range(_BATCH):
                        packet = os.read(device, _PACKET_BYTES_MAX)
                        self.take(sender, packet, clock())

    def report(self) -> str:
        """Return the report as one line of JSON."""
        busy = [asdict(tally) for tally in self.tallies.values() if tally.taken]
        late_ms = round(self.late_s_max * 1e3, 3)
        return json.dumps({"directions": busy, "stray": self.stray, "late_ms_max": late_ms})


def arguments(sites: Sequence[Site], settings: WanSettings) -> list[str]:
    """Return the arguments after ``python -m node.cli.lab.wan`` for these sites and settings."""
    words = [f"--delay-ms={settings.delay_ms}", f"--loss={settings.loss}"]
    words += [f"--queue-ms={settings.queue_ms}", f"--seed={settings.seed}"]
    if settings.rate_mbit is not None:
        words.append(f"--rate-mbit={settings.rate_mbit}")
    return [*words, *(f"--site={site.namespace}={','.join(site.addresses)}" for site in sites)]


def parse(words: Sequence[str]) -> tuple[list[Site], WanSettings]:
    """Parse the output of :func:`arguments`; wrong arguments end the program with the usage."""
    parser = argparse.ArgumentParser(prog="python -m node.cli.lab.wan", description=__doc__)
    parser.add_argument("--site", action="append", required=True, metavar="NAMESPACE=ADDRESS,…")
    parser.add_argument("--delay-ms", type=float, default=WanSettings.delay_ms)
    parser.add_argument("--loss", type=float, default=WanSettings.loss)
    parser.add_argument("--rate-mbit", type=float, default=WanSettings.rate_mbit)
    parser.add_argument("--queue-ms", type=float, default=WanSettings.queue_ms)
    parser.add_argument("--seed", type=int, default=WanSettings.seed)
    options = vars(parser.parse_args(words))
    pairs = [text.partition("=") for text in options.pop("site")]
    sites = [Site(name, tuple(addresses.split(","))) for name, _, addresses in pairs]
    try:
        return sites, WanSettings(**options)
    except ValueError as fault:
        parser.error(str(fault))


def main(words: Sequence[str], kind: type[Wan] = Wan) -> None:
    """Forward until TERM or INT, with a ``kind`` of WAN, then print the report."""
    sites, settings = parse(words)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    _wake_exactly()
    wan = kind(sites, [_open_in(site.namespace) for site in sites], settings)
    sys.stdout.write(READY.decode())
    sys.stdout.flush()
    with contextlib.suppress(_Ended):
        wan.forward()
    sys.stdout.write(wan.report() + "\n")


class _Ended(Exception):
    """A signal asks the program to end."""


def _end(_number: int, _frame: FrameType | None) -> None:
    raise _Ended


def _destination(packet: bytes) -> bytes:
    """Return the destination address of an IP packet, four or sixteen bytes."""
    is_version_4 = packet[0] >> 4 == 4  # noqa: PLR2004 - the version's number
    return packet[16:20] if is_version_4 else packet[24:40]


def _open_in(namespace: str) -> int:
    """Open the TUN device of a network namespace (created if missing); it carries packets."""
    with _inside(namespace):
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        name = DEVICE.encode()
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name, _IFF_TUN | _IFF_NO_PI))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            while not _is_carrying(control, name):
                time.sleep(_CARRIER_POLL_S)
    return device


def _is_carrying(control: socket.socket, name: bytes) -> bool:
    """Return whether the device accepts packets, or is down, which is not ours to change.

    The kernel marks an opened device as running a little later, and drops packets until then.
    """
    answer = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sH22x", name, 0))
    flags = struct.unpack_from("16xH", answer)[0]
    return not flags & _IFF_UP or bool(flags & _IFF_RUNNING)


@contextlib.contextmanager
def _inside(namespace: str) -> Iterator[None]:
    """Enter a network namespace for the duration of the block."""
    with Path("/proc/self/ns/net").open() as home, Path(f"/run/netns/{namespace}").open() as there:
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(home.fileno())


def _enter(namespace: int) -> None:
    """Call ``setns``; ``os.setns`` exists only since Python 3.12."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter the network namespace")


def _wake_exactly() -> None:
    """Wake up at the requested instant, even when the host is busy.

    This raises the process's priority, if permitted, reduces the timers' usual slack of 0.05 ms,
    and disables garbage collection, because nothing here creates cycles. With four busy loops on
    two processors the priority alone reduces the mean error of a round trip from 2 ms to 0.2 ms.
    """
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    gc.disable()


if __name__ == "__main__":
    main(sys.argv[1:])
