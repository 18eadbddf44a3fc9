"""Resolves a host and becomes another program: for programs that neither report nor take names.

``resolved.py '{"host": "d.example", "ip_version": null, "argv": {"4": ["mtr", …], "6": […]}}'``
prints the address on a line of its own and replaces itself by the argv of that version, with the
address in place of the word ``ADDRESS``.
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


def main(document: str) -> int:
    """Look the host up and become the program; return an exit code if that fails."""
    arguments = json.loads(document)
    host: str = arguments["host"]
    family_wanted = _FAMILIES[arguments["ip_version"]]
    try:
        entries = socket.getaddrinfo(host, None, family_wanted, socket.SOCK_DGRAM)
    except OSError as fault:
        print(f"{host}: {fault.strerror}", file=sys.stderr)
        return 1
    family, address = entries[0][0], str(entries[0][4][0])
    words = arguments["argv"][str(_VERSIONS[family])]
    argv = [address if word == ADDRESS else word for word in words]
    print(address, flush=True)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - an argv, no shell
    except OSError as fault:
        print(f"{argv[0]}: {fault.strerror}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
