"""Extras: the packages that a part of the program needs, and the line that installs them.

The packages of an extra are locked in a file of this program (``requirements/EXTRA.txt``, which
``deploy.extras`` writes). So the line has the same effect in a package, an image and a checkout,
and names nothing on a registry that somebody else could own.
"""

from __future__ import annotations

import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements")


def install_command(extra: str) -> str:
    """Return the line that installs an extra where this program runs."""
    return (
        f"{sys.executable} -m pip install --no-deps --require-hashes "
        f"--requirement {REQUIREMENTS / extra}.txt"
    )
