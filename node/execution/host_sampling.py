"""Samples of a host's state, read from /proc right before and right after a part is measured.

One sample takes 30 microseconds, so it delays no start. Another network namespace is entered only
once, during preparation, by a thread that ends there; the file of counters that the thread opened
keeps showing that namespace.
"""

from __future__ import annotations

import ctypes
import ipaddress
import operator
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from node.execution import netlink, proctable
from node.execution.tool_terms import NAMESPACES
from node.model.errors import HostError
from node.model.wire.circumstances import ClockCondition, InterfaceLoad, ProcessorLoad
from node.runtime import clock

_NANOSECONDS_PER_MS = 1e6
_FILE_BYTES = 1 << 16
_CLONE_NEWNET = 0x40000000
_TIMED = 8  # user, nice, system, idle, iowait, irq, softirq, steal; guests are in the first two

_SOURCES = (
    ("chrony", ("/run/chrony/chronyd.pid", "/run/chronyd.pid", "/run/chrony.pid")),
    ("ntpd", ("/run/ntpd.pid", "/run/ntpsec/ntpd.pid", "/run/openntpd.pid")),
    ("systemd-timesyncd", ("/run/systemd/timesync/synchronized",)),
)
"""Programs that keep clocks synchronised, and the files that show that they do."""

_ANYWHERE = "192.0.2.1"
"""Stands for a target that is a name: the route to the rest of the Internet."""

_NOWHERE = -1

Counters = tuple[int, ...]
"""Received octets, packets, errors, drops; sent octets, packets, errors, drops."""


@dataclass(frozen=True)
class HostSample:
    """One sample. Times are nanoseconds; processor times are clock ticks since boot."""

    steady_ns: int
    set_off_ns: int
    processors: int
    busy_ticks: int
    all_ticks: int
    waiting_us: int | None
    interface: Counters | None


class HostObserver:
    """Observes the host while one part is measured."""

    def __init__(
        self, address: str, namespace: str | None = None, device: str | None = None
    ) -> None:
        """Determine the interface: ``device``, or the one by which ``address`` is reached.

        :raises HostError: the namespace cannot be entered.
        """
        self._name = device or interface_to(address, namespace)
        self._counters = in_namespace(namespace, _open_counters)
        self._before: HostSample | None = None

    def begin(self) -> None:
        """Take the first sample."""
        self._before = self._sample()

    def end(self) -> HostSamplePair | None:
        """Take the last sample and return both; None if there was no first one."""
        try:
            return (
                None
                if self._before is None
                else HostSamplePair(self._before, self._sample(), self._name)
            )
        finally:
            self.close()

    def close(self) -> None:
        """Close the file of counters; safe to call twice."""
        if self._counters != _NOWHERE:
            os.close(self._counters)
        self._counters = _NOWHERE

    def _sample(self) -> HostSample:
        processors, busy, total = _processors()
        return HostSample(
            steady_ns=clock.steady_ns(),
            set_off_ns=clock.set_off_ns(),
            processors=processors,
            busy_ticks=busy,
            all_ticks=total,
            waiting_us=_waiting_us(),
            interface=self._interface(),
        )

    def _interface(self) -> Counters | None:
        if self._counters == _NOWHERE:
            return None
        return _counters(os.pread(self._counters, _FILE_BYTES, 0), self._name)


@dataclass(frozen=True)
class HostSamplePair:
    """The samples before and after a part, and the name of the measured interface."""

    before: HostSample
    after: HostSample
    interface_name: str | None

    @property
    def lasted_ms(self) -> float:
        """The time between the two samples, in milliseconds."""
        return round(max(0, self.after.steady_ns - self.before.steady_ns) / _NANOSECONDS_PER_MS, 3)

    def clock(self) -> ClockCondition:
        """Return the state of the clock, and by how much it was set between the samples."""
        state = clock.synchronisation()
        bound = state.error_bound
        stepped_ns = self.after.set_off_ns - self.before.set_off_ns
        return ClockCondition(
            synchronised=state.synchronised,
            source=_clock_source(),
            error_bound_ms=None if bound is None else bound / 1000,
            stepped_ms=round(stepped_ns / _NANOSECONDS_PER_MS, 3),
            identity=clock.identity(),
        )

    def processors(self, own_ticks: int | None) -> ProcessorLoad:
        """Return the load of the processors; ``own_ticks`` is the part of this run's program."""
        before, after = self.before, self.after
        passed = after.all_ticks - before.all_ticks
        waiting = None
        if before.waiting_us is not None and after.waiting_us is not None:
            waiting = _share(after.waiting_us - before.waiting_us, 1000 * self.lasted_ms)
        return ProcessorLoad(
            count=after.processors,
            busy=_share(after.busy_ticks - before.busy_ticks, passed),
            own=None if own_ticks is None else _share(own_ticks, passed),
            waiting=waiting,
        )

    def interface(self) -> InterfaceLoad | None:
        """Return the traffic of the interface; None if it was absent, or its counters restarted."""
        old, new, name = self.before.interface, self.after.interface, self.interface_name
        if name is None or old is None or new is None or any(map(operator.lt, new, old)):
            return None
        received, packets_in, bad_in, lost_in, sent, packets_out, bad_out, lost_out = (
            now - then for then, now in zip(old, new, strict=True)
        )
        return InterfaceLoad(
            name=name,
            loopback=name == "lo",
            speed_mbps=_speed(name),
            sent_bytes=sent,
            received_bytes=received,
            sent_packets=packets_out,
            received_packets=packets_in,
            errors=bad_in + bad_out,
            dropped=lost_in + lost_out,
        )


def interface_to(address: str, namespace: str | None = None) -> str | None:
    """Return the interface by which the kernel reaches an address; None if there is no route.

    Names are not resolved; they count as addresses outside.

    :raises HostError: the namespace cannot be entered.
    """
    try:
        target = ipaddress.ip_address(address)
    except ValueError:
        target = ipaddress.ip_address(_ANYWHERE)
    return in_namespace(namespace, lambda: netlink.interface_to(target))


T = TypeVar("T")


def in_namespace(namespace: str | None, look: Callable[[], T]) -> T:
    """Call ``look`` in a network namespace, given by name, and return its result.

    :raises HostError: the namespace cannot be entered.
    """
    if namespace is None:
        return look()
    results: list[T] = []
    faults: list[OSError] = []

    def enter_and_look() -> None:
        try:
            _enter(NAMESPACES / namespace)
            results.append(look())
        except OSError as fault:
            faults.append(fault)

    # In a thread: a network namespace belongs to a thread, and this one ends without leaving it.
    thread = threading.Thread(target=enter_and_look, name=f"in {namespace}")
    thread.start()
    thread.join()
    if faults:
        msg = f"the network namespace {namespace} cannot be entered: {faults[0].strerror}"
        raise HostError(msg) from faults[0]
    return results[0]


def _enter(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)


def _read_file(path: str) -> bytes:
    """Read a small file of /proc; return nothing if it does not exist."""
    return proctable.read_small_file(path, _FILE_BYTES)


def _processors() -> tuple[int, int, int]:
    """Return the number of processors, the ticks in which they were busy, and all ticks."""
    head = _read_file("/proc/stat").partition(b"intr")[0].splitlines()
    if not head:
        return 0, 0, 0
    ticks = [int(word) for word in head[0].split()[1 : 1 + _TIMED]]
    idle = sum(ticks[3:5])
    return len(head) - 1, sum(ticks) - idle, sum(ticks)


def _waiting_us() -> int | None:
    """Return the microseconds since boot in which a task waited for a processor."""
    line = _read_file("/proc/pressure/cpu").partition(b"\n")[0]
    _, equals, total = line.partition(b"total=")
    return int(total) if equals else None


def _open_counters() -> int:
    """Open the counters of the calling thread's namespace; any thread may read them."""
    try:
        return os.open("/proc/thread-self/net/dev", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return _NOWHERE


def _counters(text: bytes, name: str | None) -> Counters | None:
    """Return the counters of one interface; None if it is absent."""
    for line in text.decode(errors="replace").splitlines()[2:]:
        device, _, counters = line.partition(":")
        if device.strip() == name:
            numbers = [int(word) for word in counters.split()]
            return tuple(numbers[0:4] + numbers[8:12])
    return None


def _speed(name: str) -> int | None:
    """Return the speed that a device reports (Mb/s); virtual devices do not report a true one."""
    if not Path(f"/sys/class/net/{name}/device").exists():
        return None
    try:
        speed = int(_read_file(f"/sys/class/net/{name}/speed"))
    except ValueError:
        return None
    return speed if speed > 0 else None


def _clock_source() -> str | None:
    return next(
        (name for name, files in _SOURCES if any(os.path.exists(file) for file in files)),  # noqa: PTH110 - three times faster
        None,
    )


def _share(part: float, whole: float) -> float | None:
    return round(min(1.0, max(0.0, part / whole)), 4) if whole > 0 else None
