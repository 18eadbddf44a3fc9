"""A wire from this host into a network namespace of its own, for tests; making it needs root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from node.execution import process

NAMESPACE = f"parley-{os.getpid()}-far"
NEAR, FAR = "203.0.113.81", "203.0.113.82"
DEVICE, FAR_DEVICE = "parleynear0", "far0"

ALLOWED = {
    "a": f"interface:{DEVICE} address:{NEAR}",
    "b": f"namespace:{NAMESPACE} namespace:parley-nowhere",
}
"""What the owners of nodes allow of it, by the nodes' names."""

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
    """The wire while it is there; nothing for whoever is not root."""
    if os.geteuid():
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
