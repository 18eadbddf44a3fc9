"""Builds the package of the last release, in build/released: ``python3 -m deploy.released``.

The program comes from the history of this clone: the latest tag of a release, or, in a clone
without tags, the commit that added the latest queries to ``tests/releases``, as each release does.
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
    if _git(REPOSITORY, "rev-parse", "--is-shallow-repository") == "true":
        raise LookupError("this clone has no history; fetch it: git fetch --unshallow")
    commit = _tagged() or _commit_of_queries()
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", REPOSITORY, into], check=True)
    _git(into, "checkout", "--quiet", commit)
    return commit


def _tagged() -> str | None:
    """Return the commit of the latest tag of a release before this commit, if there is one."""
    tags = _git(REPOSITORY, "tag", "--list", "v*", "--merged", "HEAD~1", "--sort=-v:refname")
    return _git(REPOSITORY, "rev-parse", f"{tags.split()[0]}^{{commit}}") if tags else None


def _commit_of_queries() -> str:
    """Return the commit that added the latest queries of a release."""
    queries = (REPOSITORY / "tests/releases").glob("queries_*.json.gz")
    latest = max(queries, key=lambda file: int(re.sub(r"\D", "", file.name)))
    schema = latest.with_name(latest.name.replace("queries", "schema").replace("json", "sql"))
    return _git(REPOSITORY, "log", "-1", "--format=%H", "--", str(schema))


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
