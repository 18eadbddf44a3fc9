"""Builds the package of the last release, in build/released: ``python3 -m deploy.released``.

The program comes from the history of this clone: each release adds the queries of its program to
``tests/releases``, so the commit that added the latest ones is the last release.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.package import REPOSITORY
from deploy.progress import print_line

RELEASED = REPOSITORY / "build" / "released"


def check_out(into: Path) -> str:
    """Check out the program of the last release into a new folder; return its commit.

    :raises LookupError: this clone has too little history.
    """
    queries = (REPOSITORY / "tests/releases").glob("queries_*.json.gz")
    latest = max(queries, key=lambda file: int(re.sub(r"\D", "", file.name)))
    if _git(REPOSITORY, "rev-parse", "--is-shallow-repository") == "true":
        raise LookupError("this clone has no history; fetch it: git fetch --unshallow")
    schema = latest.with_name(latest.name.replace("queries", "schema").replace("json", "sql"))
    commit = _git(REPOSITORY, "log", "-1", "--format=%H", "--", str(schema))
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", REPOSITORY, into], check=True)
    _git(into, "checkout", "--quiet", commit)
    return commit


def _git(directory: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", directory, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def main() -> str | None:
    """Build the package; return the error message if that fails."""
    shutil.rmtree(RELEASED, ignore_errors=True)
    RELEASED.parent.mkdir(exist_ok=True)
    try:
        commit = check_out(RELEASED)
    except LookupError as fault:
        return str(fault)
    print_line(f"The last release is of commit {commit[:8]}")
    built = subprocess.run([sys.executable, "-m", "deploy.package"], cwd=RELEASED, check=False)
    return "the package could not be built; the reason is above" if built.returncode else None


if __name__ == "__main__":
    sys.exit(main())
