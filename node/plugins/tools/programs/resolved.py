"""Becomes another program, once a host's address is known: for programs that tell or take no names.

``resolved.py '{"host": "d.example", "ip_version": null, "argv": {"4": ["mtr", …], "6": […]}}'``
prints the address on a line of its own and replaces itself by the argv of that version, in which
``ADDRESS`` stands for the address.
"""

from __future__ import annotations

import json
import os
import socket
import sys

ADDRESS = "ADDRESS"
"""The word that is replaced."""

_VERSIONS = {socket.AF_INET: 4, socket.AF_INET6: 6}
_FAMILIES = {None: socket.AF_UNSPEC, 4: socket.AF_INET, 6: socket.AF_INET6}


def main(written: str) -> int:
    """Look the host up and become the program; an exit code if that cannot be."""
    asked = json.loads(written)
    host: str = asked["host"]
    try:
        found = socket.getaddrinfo(host, None, _FAMILIES[asked["ip_version"]], socket.SOCK_DGRAM)
    except OSError as fault:
        print(f"{host}: {fault.strerror}", file=sys.stderr)
        return 1
    family, address = found[0][0], str(found[0][4][0])
    argv = [address if word == ADDRESS else word for word in asked["argv"][str(_VERSIONS[family])]]
    print(address, flush=True)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - an argv, no shell
    except OSError as fault:
        print(f"{argv[0]}: {fault.strerror}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
