"""Misbehaving programs under the names of measuring tools.

They come first in one node's PATH. The target of the measurement, or an option that is passed to
the program, selects the misbehaviour; for any other target the script runs the real program.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from node.plugins import registry
from tests.golden.recorded import output

NODE = "c"
"""The node whose PATH has them."""

NAME = "parley-evil"
"""The process name of the programs that must not be left over."""

_STAY = f"exec -a {NAME} sleep 600"
_SECRETS = (
    f"{tempfile.gettempdir()}/parley-lab-*/*/* "
    "/proc/{1,$PPID}/{environ,cmdline,status} /etc/shadow /root/.*"
)
_SOCKET = "/usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX)'"
_DEEDS = {
    "hang": _STAY,
    "stubborn": f"trap '' TERM HUP INT; {_STAY}",
    "shut": f"exec >&- 2>&-; {_STAY}",
    "fork": f"({_STAY}) & echo '{{}}'",
    "escape": f"""read -r < <(setsid bash -c "echo up; {_STAY} >/dev/null 2>&1"); echo '{{}}'""",
    "flood": "head -c 50000000 /dev/zero | tr '\\0' x",
    "nul": "printf 'PING \\0 (\\0)\\n\\0'",
    "latin": "printf 'Z\\374rich \\377\\n'",
    "braces": "echo '{}'",
    "silent": "",
    "killed": "kill -9 $$",
    "lie": """cat "${0%/*}/lie" """,
    "crowd": f"for _ in {{1..90}}; do {{ {_STAY}; }} & done; {_STAY}",
    "reach": f"{_SOCKET} 2>&- && kill -9 $$",
    "contain": "for it in user net pid; do unshare --$it true 2>&- && kill -9 $$; done",
    "steal": f"for it in {_SECRETS}; do head -c1 $it 2>&- && kill -9 $$; done; kill $PPID 2>&-",
}
DEEDS = list(_DEEDS)


def dest(deed: str) -> str:
    """Return the target that selects this misbehaviour."""
    return f"127.66.0.{DEEDS.index(deed) + 1}"


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Create a folder with one for each program that a tool of ours needs."""
    with tempfile.TemporaryDirectory(prefix="parley-evil-") as name:
        place = Path(name)
        place.chmod(0o755)  # the account of the tools has to read it
        script = place / "stand-in"
        script.write_text(_script())
        script.chmod(0o755)
        (place / "lie").write_bytes(_lie())
        for tool in registry.tools().values():
            # The tools of idle measure no target that could select a misbehaviour.
            if tool.requirement is not None and "idle" not in tool.tests:
                others = (program for program, _ in tool.requirement.others)
                for program in (tool.requirement.program, *others):
                    (place / program).unlink(missing_ok=True)
                    (place / program).symlink_to(script)
        yield place


def _script() -> str:
    cases = [
        f"  *'{dest(deed)}'[\\ /]*)\n    {deed_script}\n    exit 0;;\n"
        for deed, deed_script in _DEEDS.items()
    ]
    return (
        "#!/bin/bash\n"
        'case " $* " in\n' + "".join(cases) + "esac\n"
        "PATH=${PATH#*:}\n"
        'exec "${0##*/}" "$@"\n'
    )


def _lie() -> bytes:
    """Return the output of a real ping of ten packets, by which it sent fewer than came back."""
    return re.sub(rb"10(?= packets transmitted)", b"9", output("ping", "loopback").stdout)
