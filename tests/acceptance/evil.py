"""Programs that do all that programs should not, under the names of measuring tools.

They stand first in one node's PATH. Which evil one does is told by whom it is to measure, or by an
option that goes through to it; asked for anything else, it becomes the real program.
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
"""The node that has them."""

NAME = "parley-evil"
"""What those call themselves that should not be left."""

_STAY = f"exec -a {NAME} sleep 600"
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
}
DEEDS = list(_DEEDS)


def dest(deed: str) -> str:
    """Whom to measure, for this to be done."""
    return f"127.66.0.{DEEDS.index(deed) + 1}"


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder with them, one for each program that a tool of ours needs."""
    with tempfile.TemporaryDirectory(prefix="parley-evil-") as name:
        place = Path(name)
        script = place / "stand-in"
        script.write_text(_script())
        script.chmod(0o755)
        (place / "lie").write_bytes(_lie())
        for tool in registry.tools().values():
            # Whoever idles measures nobody who could tell what is to be done.
            if tool.requirement is not None and "idle" not in tool.tests:
                others = (program for program, _ in tool.requirement.others)
                for program in (tool.requirement.program, *others):
                    (place / program).unlink(missing_ok=True)
                    (place / program).symlink_to(script)
        yield place


def _script() -> str:
    cases = [
        f"  *'{dest(deed)}'[\\ /]*)\n    {done}\n    exit 0;;\n" for deed, done in _DEEDS.items()
    ]
    return (
        "#!/bin/bash\n"
        'case " $* " in\n' + "".join(cases) + "esac\n"
        "PATH=${PATH#*:}\n"
        'exec "${0##*/}" "$@"\n'
    )


def _lie() -> bytes:
    """What a real ping of ten packets printed, but that one answer came before it was asked for."""
    return re.sub(rb"time=(?=\d)", b"time=-", output("ping", "loopback").stdout, count=1)
