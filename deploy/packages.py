"""The programs that tests need, and the Debian packages that contain them.

``python3 -m deploy.packages`` installs the missing ones if root runs it on Debian, and otherwise
prints one line with what to install. ``make test`` runs it first. Tests whose programs are missing
after that are skipped (``tests/support/needs.py``). A package that is not available is reported in
the output, but is not an error.

It uses the standard library only, because it runs before the environment exists.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from deploy.progress import print_line, run

ATTEMPTS = 3
POLICY = Path("/usr/sbin/policy-rc.d")
"""Debian runs this program to decide whether a package's own service may start."""


@dataclass(frozen=True)
class Need:
    """A program or similar: the package that contains it, and a check whether it is present."""

    package: str
    present: Callable[[], bool]


def _program(package: str, *names: str) -> Need:
    return Need(package, lambda: any(shutil.which(name) for name in names))


def _file(package: str, path: str) -> Need:
    return Need(package, lambda: os.access(path, os.X_OK))


def _postgres() -> bool:
    return any(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or bool(shutil.which("initdb"))


def _venv() -> bool:
    return all(importlib.util.find_spec(name) for name in ("ensurepip", "venv"))


NEEDS = {
    "postgres": Need("postgresql", _postgres),  # the host's own server, in addition to the wheel's
    "iperf3": _program("iperf3", "iperf3"),
    "curl": _program("curl", "curl"),
    "ping": _program("iputils-ping", "ping"),
    "irtt": _program("irtt", "irtt"),
    "nuttcp": _program("nuttcp", "nuttcp"),
    "fping": _program("fping", "fping"),
    "traceroute": _program("traceroute", "traceroute"),
    "mtr": _program("mtr-tiny", "mtr"),
    "scamper": _program("scamper", "scamper"),
    "tracepath": _program("iputils-tracepath", "tracepath"),
    "snmpget": _program("snmp", "snmpget"),
    "snmpd": _program("snmpd", "snmpd"),  # an agent to ask
    "dnsmasq": _program("dnsmasq-base", "dnsmasq"),  # the reference for names in tests/accuracy
    "ip": _program("iproute2", "ip"),  # network namespaces
    "sysctl": _program("procps", "sysctl"),  # routers made of namespaces
    "setpriv": _program("util-linux", "setpriv"),  # programs that end with their owner
    "faketime": _program("faketime", "faketime"),  # tests/chaos sets clocks by its library
    "nginx": _program("nginx-light", "nginx"),  # the proxy of docs/how-to/proxy.md
    "jq": _program("jq", "jq"),  # transforms of archives
    "rsyslogd": _program("rsyslog", "rsyslogd"),  # the archiver syslog
    "rabbitmq": _file("rabbitmq-server", "/usr/lib/rabbitmq/bin/rabbitmq-server"),
    "prometheus": _program("prometheus", "prometheus"),
    "apt-ftparchive": _program("apt-utils", "apt-ftparchive"),  # the repository of packages
    "gpg": _program("gnupg", "gpg"),  # the key that signs it
    "systemd-analyze": _program("systemd", "systemd-analyze"),  # the units in deploy/
    "chromium": _program("chromium", "chromium", "chromium-browser"),  # the page
    "firefox": _program("firefox-esr", "firefox-esr"),  # the page, too
}
"""Needs by the name that tests declare; packages are installed and listed in this order."""

VENV = Need("python3-venv", _venv)


@cache
def present(name: str) -> bool:
    """Return whether one of ``NEEDS`` is present on this host; cached."""
    return NEEDS[name].present()


def main() -> None:
    """Install the missing packages for the tests, or print what to install."""
    missing = [need.package for need in NEEDS.values() if not need.present()]
    if missing and can_install():
        install(missing)
    elif missing:
        print_line(
            "Some tests need programs that are not installed, and are skipped. To run them: "
            f"sudo apt-get install --no-install-recommends {' '.join(missing)}"
        )


def can_install() -> bool:
    """Return whether root runs this on a host with apt-get."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(names: list[str]) -> None:
    """Install packages, and print which of them are not available."""
    print_line(f"Installing {len(names)} Debian packages: {', '.join(names)}")
    with _without_services():
        failed = _install_or_list_failed(names)
    if failed:
        print_line(f"These packages could not be installed: {', '.join(failed)}")


def _install_or_list_failed(packages: list[str]) -> list[str]:
    """Install packages with one command, else one by one; return those that failed.

    On a host that was set up a while ago the package lists name versions that no longer exist, and
    mirrors fail now and then, so the first command is retried with fresh lists.
    """
    fresh = False
    for attempt in range(1, ATTEMPTS + 1):
        fresh = _apt_get("update")
        if fresh and _apt_get("install", *packages):
            return []
        print_line(f"apt-get failed (attempt {attempt} of {ATTEMPTS})")
        if attempt < ATTEMPTS:
            time.sleep(5 * attempt)
    return [
        package
        for package in packages
        if not (fresh and _apt_get("install", package)) and not _is_installed(package)
    ]


def _is_installed(package: str) -> bool:
    """Return whether a package is installed: a broken one makes apt-get fail for all others."""
    argv = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    return done.stdout == "installed"


def _apt_get(command: str, *packages: str) -> bool:
    argv = ["apt-get", "--quiet", "--yes", "--no-install-recommends", command, *packages]
    return run(argv, _stage, {**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def _stage(line: str) -> str | None:
    is_step = line.startswith(("Get:", "Unpacking ", "Setting up "))
    return " ".join(line.split()[:5]).removesuffix(" ...") if is_step else None


@contextlib.contextmanager
def _without_services() -> Iterator[None]:
    """Keep dpkg from starting services, unless the host's owner has a policy already.

    Tests start the servers they need themselves, with their own ports and folders.
    """
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


if __name__ == "__main__":
    main()
