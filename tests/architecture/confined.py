"""Runs the transform of a document under the restrictions of the node's systemd unit.

``python -m tests.architecture.confined UNIT TRANSFORM`` drops the system calls that the unit's
``SystemCallFilter`` does not allow, with the library that systemd uses, and then does what the
node does. It prints the outcome, and whether the filter is in effect.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

from node.execution.tool_runner import ToolRunner
from node.results.transforms import Transforms
from node.runtime.settings import Settings

_ERRNO_ACTION = 0x0005_0000
_ALLOW = 0x7FFF_0000
_ALWAYS = "@default"


def calls_of(group: str) -> frozenset[str]:
    """Return the system calls of a group, including those of nested groups."""
    if not group.startswith("@"):
        return frozenset({group})
    argv = ["systemd-analyze", "syscall-filter", "--no-pager", group]
    output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    words = [line.strip() for line in output.splitlines()[1:]]
    members = [word for word in words if word and not word.startswith("#")]
    return frozenset().union(*map(calls_of, members))


def allowed_by(unit: str) -> frozenset[str]:
    """Return the system calls that a unit allows its programs."""
    allowed = calls_of(_ALWAYS)
    for line in unit.splitlines():
        name, _, value = line.partition("=")
        if name == "SystemCallFilter":
            calls = frozenset().union(*map(calls_of, value.removeprefix("~").split()))
            allowed = allowed - calls if value.startswith("~") else allowed | calls
    return allowed


def confine(allowed: frozenset[str]) -> None:
    """Forbid all other system calls to this process and its children."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_rule_add.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint)
    ]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    context = library.seccomp_init(_ERRNO_ACTION | errno.EPERM)
    for name in sorted(allowed):
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0 and library.seccomp_rule_add(context, _ALLOW, number, 0) != 0:
            raise OSError(name)
    if library.seccomp_load(context) != 0:
        raise OSError("the kernel rejected the filter")


async def _main(unit: Path, transform: dict[str, str]) -> None:
    confine(allowed_by(unit.read_text()))
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        confined = False
    except PermissionError:
        confined = True
    runner = ToolRunner(Settings())
    [result] = await Transforms(runner).apply(transform, [b'{"a": 1}'])
    await runner.close()
    answer: dict[str, object] = {"confined": confined, "document": None, "error": None}
    if isinstance(result, bytes):
        answer["document"] = json.loads(result)
    else:
        answer["error"] = result.error
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), json.loads(sys.argv[2])))
