"""A node that was taken over: it asks root's tool runner for all that would make it root again.

Its arguments are the descriptor of the way to the runner, and a JSON list of messages. It prints a
JSON list of what became of each. It needs nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

SECONDS = 60.0


def ask(control: socket.socket, message: dict[str, Any]) -> dict[str, Any]:
    """Send a first message, end the tool once it has exited, and return what was answered."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(SECONDS)
    socket.send_fds(control, [b"t"], [theirs.fileno()])
    theirs.close()
    reading, writing = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    socket.send_fds(ours, [json.dumps(message).encode()], [nothing, writing, writing])
    os.close(writing)
    answers: dict[str, Any] = {}
    while packet := ours.recv(150_000):
        answers |= json.loads(packet)
        for then in message.get("then", ()) if "started" in answers else ():
            ours.send(json.dumps(then).encode())
        message = {}
        if "exited" in answers and "ended" not in answers:
            ours.send(b'{"reap": null}')
    with os.fdopen(reading, "rb") as printed:
        return {"answers": sorted(answers), "printed": printed.read().decode(), **answers}


def main() -> None:
    """Try everything, and print what became of it."""
    control = socket.socket(fileno=int(sys.argv[1]))
    sys.stdout.write(json.dumps([ask(control, message) for message in json.loads(sys.argv[2])]))


if __name__ == "__main__":
    main()
