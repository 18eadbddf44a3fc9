"""Network namespaces for a lab: each has a link to the host, and a device in the WAN.

::

    host ── bridge parleyN ──┬── mgmt0 [namespace parley-PID-N-a] wan0 ──┐
         10.87.N.1/24        └── mgmt0 [namespace parley-PID-N-b] wan0 ──┴── the emulator

The management side carries HTTP and is as fast as the host. The measurement side is a TUN device
that works once an emulator has opened it (:mod:`.wan`).

The bridge's number ``N`` claims a subnet: creating a link of a given name either succeeds or fails,
even if two labs try at once. The bridge's alias and the namespaces' names contain the pid of the
owning process, so that the next lab recognises and removes the leftovers of a killed one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from node.cli.lab.wan import DEVICE, Site
from node.execution import process
from node.model.errors import HostError

MANAGEMENT_RANGES = ("10.87.0.0/16", "172.30.0.0/16", "198.18.0.0/16")
"""The ranges of the management subnets: two private ranges, and the benchmarking one."""

SITES_MAX = 250
_IP_S = 30.0
_QUEUE_PACKETS = 5_000  # large, so that the emulator's own queue drops packets and not the device's


@dataclass(frozen=True)
class NamespaceSite:
    """One namespace: its management address, and its two addresses in the WAN."""

    namespace: str
    management: str
    address: str
    address6: str

    @property
    def site(self) -> Site:
        """The site as the emulator sees it."""
        return Site(self.namespace, (self.address, self.address6))


class Namespaces:
    """The namespaces of one lab, one per name; :meth:`remove` also undoes partial creation."""

    def __init__(self, names: Sequence[str]) -> None:
        if not 0 < len(names) <= SITES_MAX:
            raise HostError(f"a lab has 1 to {SITES_MAX} namespaces, not {len(names)}")
        self.sites: list[NamespaceSite] = []
        self._names = names
        self._bridge: str | None = None

    def create(self) -> list[NamespaceSite]:
        """Create them all; the WAN's devices are up and have their addresses.

        :raises HostError: we are not root, something is missing, or the kernel refused; nothing is
            left behind then.
        """
        check_possible()
        remove_abandoned()
        try:
            number, subnet = self._claim()
            hosts = list(itertools.islice(subnet.hosts(), len(self._names) + 1))
            gateway = f"{hosts[0]}/{subnet.prefixlen}"
            _run_ip("addr", "add", gateway, "dev", self._bridge)
            _run_ip("link", "set", self._bridge, "up")
            for index, name in enumerate(self._names):
                self._create_site(number, index, name, f"{hosts[index + 1]}")
        except BaseException:
            self.remove()
            raise
        return self.sites

    def remove(self) -> None:
        """Remove all of it; repeatable."""
        for site in self.sites:
            with contextlib.suppress(HostError):  # not created yet, or already removed
                _run_ip("netns", "del", site.namespace)
        self.sites = []
        if self._bridge is not None:
            _remove_bridge(self._bridge)
            self._bridge = None

    def _claim(self) -> tuple[int, ipaddress.IPv4Network]:
        """Create a bridge with an unused number, and return its number and an unrouted subnet."""
        taken = _routed_networks()
        ranges = [ipaddress.IPv4Network(text) for text in MANAGEMENT_RANGES]
        subnets = itertools.chain.from_iterable(net.subnets(new_prefix=24) for net in ranges)
        for number, subnet in enumerate(subnets):
            bridge = f"parley{number}"
            if bridge in _links() or any(subnet.overlaps(net) for net in taken):
                continue
            try:
                _run_ip("link", "add", bridge, "type", "bridge")
            except HostError:
                if bridge in _links():
                    continue  # another lab was faster
                raise
            self._bridge = bridge
            _run_ip("link", "set", bridge, "alias", f"parley-{os.getpid()}")
            return number, subnet
        raise HostError(
            f"every subnet of {', '.join(MANAGEMENT_RANGES)} is routed already, so the lab's "
            "namespaces have no addresses left. Run it without --namespaces"
        )

    def _create_site(self, number: int, index: int, name: str, management: str) -> None:
        site = NamespaceSite(
            namespace=f"parley-{os.getpid()}-{number}-{name}",
            management=management,
            address=f"10.88.{number % 256}.{index + 1}",
            address6=f"fd00:88:{number:x}::{index + 1:x}",
        )
        self.sites.append(site)
        port = f"{self._bridge}-{index}"
        there = ("netns", site.namespace)
        _run_ip("netns", "add", site.namespace)
        _run_ip("link", "add", port, "type", "veth", "peer", "name", "mgmt0", *there)
        _run_ip("link", "set", port, "master", self._bridge, "up")
        _run_ip_inside(
            site.namespace,
            "link set lo up",
            f"addr add {management}/24 dev mgmt0",
            "link set mgmt0 up",
            f"tuntap add mode tun name {DEVICE}",
            f"link set {DEVICE} txqueuelen {_QUEUE_PACKETS} up",
            f"addr add {site.address}/24 dev {DEVICE}",
            f"addr add {site.address6}/64 dev {DEVICE} nodad",
        )


def check_possible() -> None:
    """Check that this host lets us create namespaces and TUN devices.

    :raises HostError: it does not; lists everything that is missing.
    """
    missing = []
    if os.geteuid() != 0:
        missing.append("root (start it with sudo)")
    if shutil.which("ip") is None:
        missing.append("the program ip (apt install iproute2)")
    if not Path("/dev/net/tun").exists():
        missing.append("/dev/net/tun (modprobe tun; in a container: --device /dev/net/tun)")
    if missing:
        raise HostError(
            f"a lab in network namespaces needs {', and '.join(missing)}. "
            "Without --namespaces the lab runs on loopback addresses and needs none of this"
        )


def remove_abandoned() -> None:
    """Remove the leftovers of labs whose process is gone (killed outright)."""
    for line in _run_ip("netns", "list").splitlines():
        name = line.split()[0]
        if _is_abandoned(name):
            _run_ip("netns", "del", name)
    for bridge, alias in _links().items():
        if bridge.startswith("parley") and _is_abandoned(alias):
            _remove_bridge(bridge)


def _is_abandoned(name: str) -> bool:
    """Return whether ``parley-PID…`` names a process that is gone."""
    prefix, _, rest = name.partition("-")
    pid = rest.partition("-")[0]
    return prefix == "parley" and pid.isdecimal() and not Path(f"/proc/{pid}").exists()


def _remove_bridge(bridge: str) -> None:
    """Remove a bridge and its ports, which the kernel would otherwise remove with a delay."""
    for link in _links():
        if link == bridge or link.startswith(f"{bridge}-"):
            with contextlib.suppress(HostError):  # removed with its namespace a moment ago
                _run_ip("link", "del", link)


def _routed_networks() -> list[ipaddress.IPv4Network]:
    """Return the destinations of this host's routes, without the default route."""
    routes = json.loads(_run_ip("-json", "-4", "route", "show", "table", "all"))
    return list(_networks(str(route["dst"]) for route in routes))


def _networks(texts: Iterable[str]) -> Iterator[ipaddress.IPv4Network]:
    for text in texts:
        if text not in ("default", "0.0.0.0/0"):
            yield ipaddress.IPv4Network(text, strict=False)


def _links() -> dict[str, str]:
    """Return the names of this host's links, with their aliases."""
    links = json.loads(_run_ip("-json", "link", "show"))
    return {str(link["ifname"]): str(link.get("ifalias", "")) for link in links}


def _run_ip(*words: str | None) -> str:
    """Run ``ip`` and return its output; raise :class:`HostError` with its message if it fails."""
    argv = ["ip", *(word for word in words if word is not None)]
    finished = process.run(argv, timeout_s=_IP_S)
    if finished.exit_code != 0:
        raise HostError(f"{' '.join(argv)}: {process.tail(finished.stderr, 1)}")
    return finished.stdout.decode()


def _run_ip_inside(namespace: str, *lines: str) -> None:
    """Run several ``ip`` commands in one namespace, by one process."""
    argv = ["ip", "-n", namespace, "-batch", "-"]
    finished = process.run(argv, timeout_s=_IP_S, stdin="\n".join(lines).encode())
    if finished.exit_code != 0:
        message = process.tail(finished.stderr, 2)
        raise HostError(f"the namespace {namespace} could not be set up: {message}")
