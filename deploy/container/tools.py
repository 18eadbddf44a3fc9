#!/opt/parley/bin/python
"""Starts parley-tools with the socket that it serves, as parley-tools.socket does under systemd.

The directory of the socket decides who may connect: it passes its group, the node's, on to it.
"""

import os
import socket
from pathlib import Path

FIRST = 3
"""The descriptor at which systemd's protocol has the socket (sd_listen_fds(3))."""


def main() -> None:
    """Replace this process by parley-tools, with the listening socket as its descriptor 3."""
    path = Path(os.environ["PARLEY_TOOL_SOCKET"])
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.umask(0o117)
    listening.bind(str(path))
    os.umask(0o077)
    listening.listen(socket.SOMAXCONN)
    if listening.fileno() == FIRST:
        listening.set_inheritable(True)
    else:
        os.dup2(listening.fileno(), FIRST)
    os.environ["LISTEN_FDS"] = "1"
    os.execv("/opt/parley/bin/parley-tools", ["parley-tools"])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
