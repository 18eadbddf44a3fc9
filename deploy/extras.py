"""Writes the locked requirements of each extra, from the lock of all packages.

``python -m deploy.extras``: ``make lock`` runs it. Each file of ``node/runtime/requirements`` names
what an extra needs beside the packages of every installation, in the versions that are tested, with
their hashes. The files are part of the program, so that hints can name them on any host
(:mod:`node.runtime.extras`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from node.runtime.extras import REQUIREMENTS

REPOSITORY = Path(__file__).resolve().parents[1]
LOCK = REPOSITORY / "deploy" / "requirements-dev.txt"
FOR_DEVELOPERS = "dev"

_BLOCK = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==.+(?: \\\n +--hash=\S+)+", re.MULTILINE)


def files() -> dict[str, str]:
    """Return the name of each extra, with the text of its file."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    everywhere = _needed(project["dependencies"])
    locked = {found[1]: found[0] for found in _BLOCK.finditer(LOCK.read_text(encoding="utf-8"))}
    return {
        extra: _text(extra, sorted(_needed(requirements) - everywhere), locked)
        for extra, requirements in project["optional-dependencies"].items()
        if extra != FOR_DEVELOPERS
    }


def _text(extra: str, names: Iterable[str], locked: Mapping[str, str]) -> str:
    """Return the lines of a file; a name without a lock is an error."""
    head = f"# What {extra} needs beside the program; make lock writes this file.\n"
    return head + "".join(f"{locked[name]}\n" for name in names)


def _needed(requirements: Iterable[str]) -> set[str]:
    """Return the names of all packages that requirements need, directly or not, as installed."""
    needed: set[str] = set()
    seen: set[str] = set()
    waiting = list(requirements)
    while waiting:
        requirement = Requirement(waiting.pop())
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        needed.add(canonicalize_name(requirement.name))
        for each in distribution(requirement.name).requires or ():
            marker = Requirement(each).marker
            extras = requirement.extras or {""}
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(each)
    return needed


if __name__ == "__main__":
    REQUIREMENTS.mkdir(exist_ok=True)
    for extra, text in files().items():
        (REQUIREMENTS / f"{extra}.txt").write_text(text, encoding="utf-8")
