"""Runs ``parley`` for shells: forks the command from a process that has imported it.

``python command_server.py serve SOCKET`` serves; ``python command_server.py SOCKET WORD…`` is what
a shell calls, with the streams, the directory, and the environment that the command shall have. It
imports nothing of Parley, and ends with the command's exit code.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

_STREAMS = [0, 1, 2]
_MOST = 1 << 20


def serve(path: str) -> None:
    """Fork a command for each connection, until the process is ended."""
    import importlib  # noqa: PLC0415 - for the server only

    from node.cli.commands import COMMANDS  # noqa: PLC0415 - the same
    from node.cli.main import main  # noqa: PLC0415 - the same

    for place, _ in COMMANDS.values():
        importlib.import_module(place)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)
        listening.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            connection, _ = listening.accept()
            if os.fork():
                connection.close()
                continue
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            message, streams, _, _ = socket.recv_fds(connection, _MOST, len(_STREAMS))
            asked = json.loads(message)
            for stream, opened in zip(_STREAMS, streams, strict=True):
                os.dup2(opened, stream)
            os.chdir(asked["directory"])
            os.environ.clear()
            os.environ.update(asked["environment"])
            sys.argv = ["parley", *asked["words"]]
            code: object = 0
            try:
                main()
            except SystemExit as ended:
                code = ended.code
            sys.stdout.flush()
            connection.sendall(bytes([code if isinstance(code, int) else 1]))
            os._exit(0)


def call(path: str, words: list[str]) -> int:
    """Have a command run, and return its exit code."""
    directory = os.getcwd()  # noqa: PTH109 - pathlib takes longer than all the rest
    asked = {"words": words, "directory": directory, "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        socket.send_fds(connection, [json.dumps(asked).encode()], _STREAMS)
        return (connection.recv(1) or b"\xff")[0]


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    sys.exit(call(sys.argv[1], sys.argv[2:]))
