"""Checks the JavaScript of the page: types by TypeScript, faults by Biome.

``python3 -m deploy.page`` brings both from npm, as ``deploy/javascript`` locks them, into
``build/javascript``, and runs them. Without npm it installs Debian's, if root runs it there, and
otherwise says what is left out and how to install it. The page itself needs neither.

It uses the standard library only.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from deploy import packages
from deploy.progress import print_line, run

SOURCES = Path("deploy/javascript")
PLACE = Path("build/javascript")
"""The folder with the packages; ``axe-core`` among them is for tests of the page."""

_LOCK = "package-lock.json"
_DEBIAN = ["nodejs", "npm"]


def main() -> int:
    """Check the page; return the exit code."""
    if not install_checkers():
        return 0
    programs = PLACE / "node_modules" / ".bin"
    commands = (
        [str(programs / "tsc"), "--project", str(SOURCES)],
        [
            *(str(programs / "biome"), "lint", "--error-on-warnings"),
            *(f"--config-path={SOURCES}", "node/web", "tests"),
        ],
    )
    return max(subprocess.run(command, check=False).returncode for command in commands)


def install_checkers() -> bool:
    """Install the locked packages of npm; return False if this host has no npm.

    :raises SystemExit: npm could not install them.
    """
    lock = SOURCES / _LOCK
    installed = PLACE / _LOCK
    if installed.exists() and installed.read_bytes() == lock.read_bytes():
        return True
    if not _has_npm():
        return False
    print_line("Installing what checks the page's JavaScript")
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    shutil.copy(SOURCES / "package.json", PLACE)
    argv = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(PLACE)]
    pending = shutil.copy(lock, PLACE)
    if not run(argv, lambda _: None):
        Path(pending).unlink()
        sys.exit("npm could not install the packages; the reason is above")
    return True


def _has_npm() -> bool:
    """Return whether npm is there, after installing Debian's where root may do that."""
    if shutil.which("npm") is None and packages.can_install():
        packages.install(_DEBIAN)
    if shutil.which("npm") is not None:
        return True
    install = f"sudo apt-get install --no-install-recommends {' '.join(_DEBIAN)}"
    print_line(
        f"The JavaScript of the page is not checked, because npm is not installed: {install}"
    )
    return False


if __name__ == "__main__":
    sys.exit(main())
