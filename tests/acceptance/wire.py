"""A link from this host into a separate network namespace, for tests; creating it needs root."""

from __future__ import annotations

import ipaddress
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from node.execution import process

NAMESPACE = f"parley-{os.getpid()}-far"
DEVICE, FAR_DEVICE = f"parley{os.getpid()}", "far0"
# Four of the addresses reserved by RFC 6598 for each process: several may run these tests.
_SUBNET = ipaddress.IPv4Address("100.64.0.0") + 4 * (os.getpid() % 2**20)
NEAR, FAR = str(_SUBNET + 1), str(_SUBNET + 2)

ALLOWED = {
    "a": f"interface:{DEVICE} address:{NEAR}",
    "b": f"namespace:{NAMESPACE} namespace:parley-nowhere",
}
"""The contexts that the owners of nodes allow, by the nodes' names."""

_COMMANDS = (
    f"netns add {NAMESPACE}",
    f"link add {DEVICE} type veth peer name {FAR_DEVICE} netns {NAMESPACE}",
    f"addr add {NEAR}/30 dev {DEVICE}",
    f"link set {DEVICE} up",
    f"-n {NAMESPACE} addr add {FAR}/30 dev {FAR_DEVICE}",
    f"-n {NAMESPACE} link set {FAR_DEVICE} up",
    f"-n {NAMESPACE} link set lo up",
)


@contextmanager
def wire() -> Iterator[None]:
    """Create the link; do nothing if the tests that need it are left out."""
    if os.geteuid() or shutil.which("ip") is None:
        yield
        return
    try:
        for words in _COMMANDS:
            made = process.run(["ip", *words.split()], timeout_s=10)
            assert made.exit_code == 0, (words, made.stderr)
        yield
    finally:
        process.run(["ip", "link", "del", DEVICE], timeout_s=10)
        process.run(["ip", "netns", "del", NAMESPACE], timeout_s=10)
