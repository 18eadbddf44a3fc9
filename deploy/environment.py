"""Creates the Python environment and installs the packages of lock files, and Parley, into it.

``python3 -m deploy.environment .venv deploy/requirements.txt``: ``make`` runs it when the
environment is missing or older than its locks. It reports its progress, because the first time
takes a minute or two.

It uses the standard library only, of any Python that Parley supports.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from deploy import packages
from deploy.progress import print_line, run

_PIN = re.compile(r"^[\w.-]+(?=(\[[\w,-]+\])?==)", re.MULTILINE)
_STEP = re.compile(r"(?:Collecting|Requirement already satisfied:) ([\w.-]+)")

_FORMER_NAME = "parley"
"""The distribution's name until 0.1; it must be removed, or the modules would exist twice."""
_FETCHED = "Installing collected packages"


def main(environment: Path, locks: Sequence[Path]) -> str | None:
    """Bring the environment up to date; return the error message if that fails."""
    began = time.monotonic()
    python = environment / "bin" / "python"
    warm = python.exists()
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    # What is imported is compiled then, which is a part of all that there is.
    install = [*pip, "install", "--no-compile"]
    total = sum(len(_PIN.findall(lock.read_text())) for lock in locks)
    if not warm:
        print_line(
            f"Creating a Python environment in {environment} (Python {sys.version.split()[0]})"
        )
        if fault := _make(environment):
            return fault
    print_line(f"Installing {total} Python packages into {environment}")
    locked = [*install, "--require-hashes", *(f"--requirement={lock}" for lock in locks)]
    if not run(locked, _package_counter(total), landmark=_FETCHED):
        return "the packages could not be installed; the reason is above"
    if warm and not run([*pip, "uninstall", "--yes", _FORMER_NAME], lambda _: None):
        return f"{_FORMER_NAME} could not be removed; the reason is above"
    # Use the locked hatchling from the environment instead of one that pip downloads.
    parley = [*install, "--no-deps", "--no-build-isolation", "--editable", "."]
    if not run(parley, lambda _: None):
        return "Parley could not be installed; the reason is above"
    print_line(f"Installed after {time.monotonic() - began:.0f} s")
    return None


def _make(environment: Path) -> str | None:
    if not packages.VENV.present() and packages.can_install():
        packages.install([packages.VENV.package])
    argv = [sys.executable, "-m", "venv", str(environment)]
    if subprocess.run(argv, check=False, stdout=subprocess.DEVNULL).returncode:
        return (
            f"{sys.executable} cannot create virtual environments; install the missing package: "
            f"apt-get install {packages.VENV.package}"
        )
    return None


def _package_counter(total: int) -> Callable[[str], str | None]:
    """Return a function that derives the number of processed packages from pip's output."""
    names: set[str] = set()

    def stage(line: str) -> str | None:
        if step := _STEP.match(line):
            names.add(step[1])
            return f"{len(names)} of {total}: {step[1]}"
        return "all fetched; unpacking them" if line.startswith(_FETCHED) else None

    return stage


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), [Path(each) for each in sys.argv[2:]]))
