"""Builds what a release has beside packages and images, into ``dist``.

``python -m deploy.archives`` (``make archives``) makes the wheel of the node, its source
distribution, the wheel of the client, and archives of the source and of the Ansible role. Two
builds of one commit are equal, byte for byte.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy import client
from deploy.package import REPOSITORY, commit_second, version


def build_all(directory: Path) -> Iterator[Path]:
    """Build all archives into a directory, and yield their paths."""
    from hatchling import build  # noqa: PLC0415 - needs the environment

    directory.mkdir(parents=True, exist_ok=True)
    os.environ["SOURCE_DATE_EPOCH"] = str(commit_second())
    os.chdir(REPOSITORY)
    yield directory / build.build_wheel(str(directory))
    yield directory / build.build_sdist(str(directory))
    yield client.build_wheel(directory)
    number = version()
    for name, paths in (("parley", ()), ("parley-ansible", ("deploy/ansible",))):
        yield _archive(directory / f"{name}-{number}.tar.gz", f"{name}-{number}/", paths)


def _archive(target: Path, prefix: str, paths: Sequence[str]) -> Path:
    """Write what the last commit has of some paths, or of all, into an archive of its time."""
    argv = ["git", "archive", "--format=tar", f"--prefix={prefix}", "HEAD", *paths]
    tar = subprocess.run(argv, cwd=REPOSITORY, check=True, capture_output=True)
    target.write_bytes(gzip.compress(tar.stdout, mtime=0))
    return target


if __name__ == "__main__":
    for path in build_all(Path(sys.argv[1]) if sys.argv[1:] else REPOSITORY / "dist"):
        print(f"Built {path}")
