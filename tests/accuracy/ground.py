"""Namespaces joined by an emulated WAN, whose true behaviour is known afterwards.

::

    a ──── the WAN ──── b ──── a link whose MTU is known ──── c

In ``b`` are a name server and a web server; both know one name, b's.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from node.cli.lab import wan
from node.cli.lab.namespaces import Namespaces, NamespaceSite
from node.cli.lab.wan import Site, WanSettings
from node.execution import process
from node.execution.trial import Trial, run_trial
from node.plugins.contracts import Command, PartContext, Test, Tool
from node.runtime.clock import SystemClock
from tests.accuracy import serving

NAMES = ("a.example", "b.example", "c.example")
_LINK = "link0"
_NEAR = {4: "10.89.0.1", 6: "fd00:89::1"}
_FAR = {4: "10.89.0.2", 6: "fd00:89::2"}
_BITS = {4: 24, 6: 64}
_LINK_BYTES = 1500
_INSIDE = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
_WAIT_S = 10.0


@dataclass(frozen=True)
class Direction:
    """The emulator's counts of one direction's packets."""

    taken: int = 0
    lost: int = 0
    tail: int = 0

    @property
    def arrived(self) -> int:
        """The packets that were not lost or dropped."""
        return self.taken - self.lost - self.tail

    @property
    def loss(self) -> float:
        """The fraction that did not arrive."""
        return 1 - self.arrived / self.taken if self.taken else 0.0


@dataclass
class Truth:
    """The true behaviour; complete when the emulator has ended."""

    forward: Direction = field(default_factory=Direction)
    backward: Direction = field(default_factory=Direction)
    late_ms_max: float = 0.0


class Placed:
    """A tool whose commands run in a namespace for each participant.

    There, names are resolved by the name server, and the web server's certificates are trusted.
    """

    def __init__(self, tool: Tool, namespaces: Sequence[str], folder: Path, resolver: Path) -> None:
        """Wrap ``tool``; participant ``i`` runs in ``namespaces[i]``."""
        self._tool = tool
        self._namespaces = namespaces
        self._trusted = f"SSL_CERT_FILE={folder / serving.TRUSTED}"
        self._resolver = resolver

    def __getattr__(self, name: str) -> Any:
        """Delegate everything except the command to the tool."""
        return getattr(self._tool, name)

    def command(self, part: PartContext) -> Command:
        """Return the tool's command, run inside the namespace."""
        command = self._tool.command(part)
        # ip gives its child processes mounts of their own: the host's resolv.conf is not changed.
        inside = ["ip", "netns", "exec", self._namespaces[part.participant], "env", self._trusted]
        inside += ["sh", "-c", _INSIDE, str(self._resolver)]
        return replace(command, argv=(*inside, *command.argv))


class Ground:
    """The namespaces ``a``, ``b`` and ``c``, kept over many WANs."""

    def __init__(self, sites: Sequence[NamespaceSite], folder: Path) -> None:
        """Use existing sites; the servers' files are in ``folder``."""
        self.sites = sites
        self._folder = folder

    @contextlib.asynccontextmanager
    async def wan(
        self, settings: WanSettings, link_bytes: int = _LINK_BYTES, fault: str | None = None
    ) -> AsyncIterator[Truth]:
        """Run a WAN with these settings; yield the truth, which is complete afterwards.

        ``link_bytes`` is the MTU of the link behind it, ``fault`` what is broken
        (:mod:`tests.accuracy.faults`).
        """
        a, b, c = self.sites
        for site in (b, c):
            await _in(site, "ip", "link", "set", _LINK, "mtu", str(link_bytes))
        for version in (4, 6):  # the kernel's cached path properties are of the last WAN
            await _in(a, "ip", f"-{version}", "route", "flush", "cache")
        behind = Site(b.namespace, (*b.site.addresses, *_FAR.values()))
        words = wan.arguments([a.site, behind], settings)
        program = ["node.cli.lab.wan"] if fault is None else ["tests.accuracy.faults", fault]
        emulator = await process.start([sys.executable, "-m", *program, *words])
        truth = Truth()
        try:
            await emulator.wait_for_output(wan.READY)
            yield truth
        finally:
            await emulator.end(5.0)
        report = json.loads((await emulator.wait()).stdout.partition(wan.READY)[2])
        truth.late_ms_max = report["late_ms_max"]
        for each in report["directions"]:
            counted = Direction(each["taken"], each["lost"], each["tail"])
            if each["sender"] == a.namespace:
                truth.forward = counted
            else:
                truth.backward = counted

    async def measure(self, test: Test, tool: Tool, spec: Any, ip_version: int) -> Trial:
        """Run a test between ``a`` and ``b``."""
        a, b, _ = self.sites
        resolver = self._folder / f"resolv{ip_version}.conf"
        resolver.write_text(f"nameserver {_address(b, ip_version)}\n")
        placed = Placed(tool, [a.namespace, b.namespace], self._folder, resolver)
        addresses = (_address(a, ip_version), _address(b, ip_version), _FAR[ip_version])
        places = dict(zip(NAMES, addresses, strict=True))
        places |= {"this-host": addresses[0], serving.NAME: serving.NAME}
        return await run_trial(test, cast(Tool, placed), spec, SystemClock(), places)

    async def send(self, count: int, octets: int, ip_version: int) -> None:
        """Send echo requests from ``a`` to ``b``, a hundred a second, of this total size."""
        a, b, _ = self.sites
        content = str(octets - {4: 28, 6: 48}[ip_version])
        words = ["ping", "-q", "-c", str(count), "-i", "0.01", "-s", content]
        await _in(a, *words, _address(b, ip_version), may_fail=True)

    async def start_servers(self) -> Sequence[process.RunningProcess]:
        """Start the servers in ``b``."""
        b = self.sites[1]
        namer = ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file="]
        namer += ["--user=root", "--group=root", "--no-resolv", "--no-hosts", "--log-facility=-"]
        namer.append(f"--host-record={serving.NAME},{b.address},{b.address6}")
        web = [sys.executable, "-m", "tests.accuracy.serving", str(self._folder)]
        names = await process.start(
            ["sh", "-c", 'exec "$@" 2>&1', "sh", *namer], namespace=b.namespace
        )
        pages = await process.start(web, namespace=b.namespace)
        await names.wait_for_output(b"started")
        await pages.wait_for_output(serving.READY)
        return names, pages


def _address(site: NamespaceSite, ip_version: int) -> str:
    return site.address if ip_version == 4 else site.address6


async def _in(site: NamespaceSite, *argv: str, may_fail: bool = False) -> None:
    words = ["ip", "netns", "exec", site.namespace, *argv]
    finished = await process.finish(words, timeout_s=_WAIT_S)
    assert may_fail or finished.exit_code == 0, (argv, process.tail(finished.stderr))


async def _join(sites: Sequence[NamespaceSite]) -> None:
    """Take ``c`` out of the WAN and connect it behind ``b``."""
    a, b, c = sites
    await _in(b, "sysctl", "-q", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
    # Without router solicitations, which would be among the counted packets.
    await _in(a, "sysctl", "-q", f"net.ipv6.conf.{wan.DEVICE}.accept_ra=0")
    await _in(c, "ip", "link", "del", wan.DEVICE)
    peer = ("peer", "name", _LINK, "netns", c.namespace)
    await _in(b, "ip", "link", "add", _LINK, "type", "veth", *peer)
    for site, addresses in ((b, _NEAR), (c, _FAR)):
        await _in(site, "ip", "link", "set", _LINK, "up")
        for version, address in addresses.items():
            nodad = ("nodad",) if version != 4 else ()
            own = f"{address}/{_BITS[version]}"
            await _in(site, "ip", "addr", "add", own, "dev", _LINK, *nodad)
    for version, far in _FAR.items():
        which = f"-{version}"
        await _in(a, "ip", which, "route", "add", far, "dev", wan.DEVICE)
        await _in(c, "ip", which, "route", "add", "default", "via", _NEAR[version])


@contextlib.asynccontextmanager
async def ground() -> AsyncIterator[Ground]:
    """Create namespaces, with servers in one of them; needs root."""
    namespaces = Namespaces([name.partition(".")[0] for name in NAMES])
    running: Sequence[process.RunningProcess] = ()
    with TemporaryDirectory(prefix="parley-accuracy-") as folder:
        try:
            place = Ground(namespaces.create(), Path(folder))
            await _join(place.sites)
            running = await place.start_servers()
            yield place
        finally:
            for each in running:
                await each.end(1.0)
            namespaces.remove()
