"""Gives an environment the place that it will have on hosts: ``python3 -m deploy.relocate``.

The build of the Debian package makes the environment inside the package. What names that place then
gets the place on the host, and the lists of what each distribution has installed (``RECORD``) get
the sums of the changed files.

It uses the standard library only, because it runs before the environment has anything.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import sys
from pathlib import Path


def relocate(environment: Path, stage: str) -> list[Path]:
    """Remove ``stage`` from all texts of an environment; return the files that changed."""
    old = stage.encode()
    changed = [path for path in _texts(environment) if old in path.read_bytes()]
    for path in changed:
        path.write_bytes(path.read_bytes().replace(old, b""))
    for record in sorted(environment.rglob("*.dist-info/RECORD")):
        _sum_anew(record, {path.resolve() for path in changed})
    return changed


def _texts(environment: Path) -> list[Path]:
    """Return the files without a zero byte, links left out."""
    files = (it for it in sorted(environment.rglob("*")) if it.is_file() and not it.is_symlink())
    return [it for it in files if b"\0" not in it.read_bytes()]


def _sum_anew(record: Path, changed: set[Path]) -> None:
    """Write the sums of changed files into the list of a distribution."""
    rows = list(csv.reader(io.StringIO(record.read_text(encoding="utf-8"))))
    for row in rows:
        path = (record.parents[1] / row[0]).resolve()
        if row[1] and path in changed:
            content = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            row[1:] = [f"sha256={digest.decode()}", str(len(content))]
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    record.write_text(written.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    for each in relocate(Path(sys.argv[1]), sys.argv[2]):
        print(f"relocated {each}")
