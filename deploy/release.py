"""Prepares a release as far as a person without the project's keys may: ``make release``.

It refuses what is not ready, builds everything into ``dist``, writes notes and checksums, and tags
the commit. Then it says what is left to the owner of the names. ``python3 -m deploy.release --notes
0.3.0`` prints the notes of a release alone.

It uses the standard library only, because the workflow that publishes runs it, too.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from deploy.package import REPOSITORY, version
from deploy.progress import print_line

TARGETS = ("archives", "package", "sbom")
NOTES = "NOTES.md"
CHECKSUMS = "SHA256SUMS"
_UNRELEASED = "Unreleased"
_SECTION = re.compile(r"^## \[([^\]]+)\](?: - \d{4}-\d{2}-\d{2})?\n", re.MULTILINE)


def sections(changelog: str) -> dict[str, str]:
    """Return what the changelog has of each version, by its number; the newest comes first."""
    parts = _SECTION.split(changelog)[1:]
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


def notes(number: str, changelog: str) -> str:
    """Return the notes of a release: its own changes, and nothing of other releases.

    :raises LookupError: the changelog has no changes of this version.
    """
    text = sections(changelog).get(number)
    if not text:
        raise LookupError(f"CHANGELOG.md has no changes of {number}")
    return text.replace("\n### ", "\n## ").replace("### ", "## ", 1) + "\n"


def faults(number: str, changelog: str, *, tags: str, changed: str) -> Iterator[str]:
    """Yield what has to be done before this version can be released.

    ``tags`` and ``changed`` are what ``git tag`` and ``git status --porcelain`` print.
    """
    if changed:
        yield "commit or remove what is changed (git status)"
    if f"v{number}" in tags.split():
        yield f"give pyproject.toml the next version: v{number} is tagged"
    found = sections(changelog)
    if found.get(_UNRELEASED):
        yield f"give the section [{_UNRELEASED}] of CHANGELOG.md its version and date"
    if not found.get(number):
        yield f"write the section [{number}] of CHANGELOG.md"


def left_to_the_owner(number: str) -> Iterator[str]:
    """Yield what only the owner of the names and keys can do."""
    yield f"publish: git push origin v{number}; the workflow builds anew, attests, and publishes"
    yield "sign the repositories of packages with the project's key: make repository KEY=…"
    yield "copy build/repository to the web server whose name the documentation is to tell"
    yield "register the distribution's names before any page tells people to install by them"


def write_checksums(directory: Path) -> None:
    """Write the SHA-256 of each file of a directory, as sha256sum does."""
    files = sorted(it for it in directory.iterdir() if it.is_file() and it.name != CHECKSUMS)
    lines = (f"{hashlib.sha256(it.read_bytes()).hexdigest()}  {it.name}\n" for it in files)
    (directory / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    return done.stdout


def _release(number: str, changelog: str) -> str | None:
    open_faults = list(
        faults(number, changelog, tags=_git("tag"), changed=_git("status", "--porcelain"))
    )
    if open_faults:
        return "\n".join((f"{number} cannot be released yet:", *(f"- {it}" for it in open_faults)))
    dist = REPOSITORY / "dist"
    if dist.exists() and any(dist.iterdir()):
        return f"{dist} has files of something else; remove them"
    if subprocess.run(["make", *TARGETS], cwd=REPOSITORY, check=False).returncode:
        return "not everything could be built; the reason is above"
    (dist / NOTES).write_text(notes(number, changelog), encoding="utf-8")
    write_checksums(dist)
    _git("tag", "--annotate", f"v{number}", "--cleanup=verbatim", "--file", str(dist / NOTES))
    print_line(f"{number} is built in {dist} and tagged v{number}. What is left to the owner:")
    for task in left_to_the_owner(number):
        print_line(f"- {task}")
    return None


def main() -> str | None:
    """Prepare the release, or print the notes of one; return what is in the way."""
    parser = argparse.ArgumentParser(prog="python3 -m deploy.release", description=__doc__)
    parser.add_argument("--notes", metavar="VERSION", help="print the notes of this version alone")
    options = parser.parse_args()
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    if options.notes is None:
        return _release(version(), changelog)
    try:
        sys.stdout.write(notes(options.notes, changelog))
    except LookupError as fault:
        return str(fault)
    return None


if __name__ == "__main__":
    sys.exit(main())
