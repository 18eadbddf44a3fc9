"""Machines with a booted systemd: bare Debian roots in systemd-nspawn, joined by a cable.

The root is made once by debootstrap, with every package that an installation fetches already
downloaded; each machine is a layer over it. A machine has its own network, which reaches nobody
but the other machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.support.steps import Failed, complete, output, run, wait_until

MIRROR = "http://deb.debian.org/debian"
INCLUDED = "systemd,systemd-sysv,dbus,iproute2,nftables,curl,ca-certificates,procps,locales,debconf"
_BOOT_S = 120
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_root(base: Path, package: Path, further: str = "") -> None:
    """Make the root that machines are layers over, with what an installation fetches.

    ``further`` are packages that the machines have before, each after a comma.
    """
    if not (base / "etc/debian_version").exists():
        shutil.rmtree(base, ignore_errors=True)
        base.parent.mkdir(parents=True, exist_ok=True)
        included = f"--include={INCLUDED}{further}"
        run("debootstrap", "--variant=minbase", included, "bookworm", base, MIRROR)
    shutil.copy2(package, base / "root/parley.deb")
    shutil.copy2("/etc/resolv.conf", base / "etc/resolv.conf")
    run("chroot", base, "apt-get", "update", "-qq")
    download = ("apt-get", "install", "--yes", "--download-only", "-qq")
    # Ansible installs postgresql-client where apt-get is content with what provides it.
    run("chroot", base, *download, "/root/parley.deb", "postgresql-client")
    (base / "root/parley.deb").unlink()


@dataclass
class Machine:
    """One machine: a layer over the root, and its systemd while it is booted."""

    name: str
    base: Path
    address: str
    place: Path = field(init=False)
    _nspawn: subprocess.Popen[bytes] | None = None
    _leader: int = 0

    def __post_init__(self) -> None:
        """Lay the layer."""
        self.place = self.base.parent / self.name
        self.remove()
        for part in ("upper", "work", "root"):
            (self.place / part).mkdir(parents=True)
        layers = f"lowerdir={self.base},upperdir={self.place}/upper,workdir={self.place}/work"
        run("mount", "-t", "overlay", "overlay", "-o", layers, self.root)
        (self.root / "etc/hostname").write_text(f"{self.name}\n")

    @property
    def namespace(self) -> str:
        """Its network, which outlives it."""
        return f"parley-booted-{self.name}"

    @property
    def root(self) -> Path:
        """Its file system, as this host sees it."""
        return self.place / "root"

    def boot(self) -> None:
        """Boot it, with its end of the cable."""
        argv = ["systemd-nspawn", "-D", str(self.root), "--register=no", "--keep-unit", "--quiet"]
        argv += [f"--network-namespace-path=/run/netns/{self.namespace}", f"--hostname={self.name}"]
        argv += ["--capability=CAP_NET_ADMIN,CAP_NET_RAW", "--console=pipe", "--boot"]
        argv += ["--resolv-conf=off", "--timezone=off"]
        log = (self.place / "console").open("ab")
        self._nspawn = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._find_leader, f"{self.name} has an init", _BOOT_S)
        wait_until(
            lambda: self.try_("systemctl is-system-running | grep -Eq 'running|degraded'"),
            f"{self.name} is booted; see {self.place}/console",
            _BOOT_S,
        )

    def _find_leader(self) -> bool:
        assert self._nspawn is not None
        if self._nspawn.poll() is not None:
            raise Failed(f"systemd-nspawn ended: {(self.place / 'console').read_text()[-2000:]}")
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text()
        for child in children.split():
            if Path(f"/proc/{child}/comm").read_text().strip() in {"systemd", "init"}:
                self._leader = int(child)
        return bool(self._leader)

    def _argv(self, line: str) -> list[str]:
        namespaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"]
        environment = ["env", "-i", _PATH, "HOME=/root", "LC_ALL=C.UTF-8", "TERM=dumb"]
        return [
            "nsenter",
            f"--target={self._leader}",
            *namespaces,
            *environment,
            "sh",
            "-c",
            f"cd /root; {line}",
        ]

    def type(self, line: str) -> str:
        """Type a line as its root; return what it prints.

        :raises Failed: the command fails.
        """
        return output(complete(self._argv(line)), f"{self.name}# {line}")

    def try_(self, line: str) -> bool:
        """Type a line; return whether it succeeds."""
        return not complete(self._argv(line)).returncode

    def show_log(self) -> None:
        """Print the end of what its services said."""
        if self._leader:
            units = "systemctl --no-pager --failed; systemctl --no-pager --lines=0 status 'parley*'"
            log = "journalctl --no-pager --lines=40 --unit='parley*'"
            done = complete(self._argv(f"{units}; {log}"))
            print(f"--- {self.name}\n{done.stdout}{done.stderr}")

    def shut_down(self) -> None:
        """Shut it down as its owner would."""
        if self._nspawn is not None:
            self.try_("systemctl poweroff")
            try:
                self._nspawn.wait(90)
            except subprocess.TimeoutExpired:
                self.kill()
            self._nspawn, self._leader = None, 0

    def kill(self) -> None:
        """Pull the plug: killing systemd-nspawn alone would leave the machine running."""
        if self._nspawn is not None:
            if Path(f"/proc/{self._leader}").exists():
                os.kill(self._leader, signal.SIGKILL)
            self._nspawn.kill()
            self._nspawn.wait()
            self._nspawn, self._leader = None, 0

    def remove(self) -> None:
        """Remove the layer."""
        if self.place.exists():
            complete(["umount", self.root])
            shutil.rmtree(self.place, ignore_errors=True)
        complete(["ip", "netns", "delete", self.namespace])


class Networked(Protocol):
    """Something with a network of its own."""

    @property
    def namespace(self) -> str:
        """Its network."""

    address: str


def lay_cable(one: Networked, other: Networked) -> None:
    """Join two machines by a network that nobody else reaches."""
    for machine in (one, other):
        run("ip", "netns", "add", machine.namespace)
    end = ("type", "veth", "peer", "name", "cable", "netns", other.namespace)
    run("ip", "-n", one.namespace, "link", "add", "cable", *end)
    for machine in (one, other):
        run(
            "ip", "-n", machine.namespace, "address", "add", f"{machine.address}/24", "dev", "cable"
        )
        for link in ("lo", "cable"):
            run("ip", "-n", machine.namespace, "link", "set", link, "up")
        run("ip", "-n", machine.namespace, "route", "add", "default", "via", machine.address)


def leave(machines: Iterable[Machine], *, keep: bool) -> None:
    """Shut machines down, and remove their files unless they are to be kept."""
    for machine in machines:
        machine.shut_down()
        if not keep:
            machine.remove()
