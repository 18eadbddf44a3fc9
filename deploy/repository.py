"""Makes repositories of the packages in ``dist``: static files, signed, for apt and for dnf.

``python3 -m deploy.repository --key FINGERPRINT`` (``make repository KEY=FINGERPRINT``) writes
``build/repository``, which any web server can serve as it is. The key is the maker's, in their
GnuPG; its public part is beside the packages.

Packages of apt are sorted by the release of Debian or Ubuntu that they were built for, which the
end of their version names (``0.4.0+deb12``). The earlier content of ``build/repository`` is kept,
so that hosts find older versions, too.

It uses the standard library only.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy import packages
from deploy.package import REPOSITORY
from deploy.progress import print_line

PLACE = REPOSITORY / "build" / "repository"
SUITES = {"deb12": "bookworm", "deb13": "trixie", "ubuntu24.04": "noble"}
"""The suites of apt, by the end of the versions of their packages."""
PUBLIC_KEY = "parley.asc"
_NEEDS = {"apt-ftparchive": "apt-utils", "gpg": "gnupg"}
_NEEDS_OF_DNF = {"createrepo_c": "createrepo-c"}
_BUILT_FOR = re.compile(r"\+(\w+(?:\.\d+)?)_(\w+)\.deb$")


def make(files: Sequence[Path], key: str, place: Path) -> list[Path]:
    """Add packages to the repositories of a folder; return the folders of those that changed.

    :raises LookupError: a package does not tell which release it was built for.
    :raises subprocess.CalledProcessError: a program failed, and has said why.
    """
    place.mkdir(parents=True, exist_ok=True)
    public = subprocess.run(
        ["gpg", "--armor", "--export", key], check=True, capture_output=True
    ).stdout
    (place / PUBLIC_KEY).write_bytes(public)
    made = [_add_to_suite(file, place / "apt") for file in files if file.suffix == ".deb"]
    for suite in sorted(set(made)):
        _index_suite(place / "apt", suite, key)
    rpms = [file for file in files if file.suffix == ".rpm"]
    if rpms:
        _index_rpms(rpms, place / "rpm", key)
    return [place / "apt"] * bool(made) + [place / "rpm"] * bool(rpms)


def _add_to_suite(file: Path, place: Path) -> str:
    """Copy a package to its place; return its suite."""
    found = _BUILT_FOR.search(file.name)
    suite = SUITES.get(found[1]) if found else None
    if suite is None:
        raise LookupError(f"{file.name} does not tell which of {', '.join(SUITES)} it is for")
    pool = place / "pool" / suite
    pool.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, pool)
    return suite


def _index_suite(place: Path, suite: str, key: str) -> None:
    """Write the lists of a suite, and sign them."""
    found = (_BUILT_FOR.search(file.name) for file in (place / "pool" / suite).iterdir())
    architectures = sorted({each[2] for each in found if each})
    lists = place / "dists" / suite
    for architecture in architectures:
        folder = lists / "main" / f"binary-{architecture}"
        folder.mkdir(parents=True, exist_ok=True)
        listed = _output(
            "apt-ftparchive", "--arch", architecture, "packages", f"pool/{suite}", place=place
        )
        (folder / "Packages").write_bytes(listed)
    fields = {
        "Origin": "Parley",
        "Label": "Parley",
        "Suite": suite,
        "Codename": suite,
        "Architectures": " ".join(architectures),
        "Components": "main",
    }
    options = [f"-oAPT::FTPArchive::Release::{name}={value}" for name, value in fields.items()]
    for name in ("Release", "InRelease", "Release.gpg"):
        (lists / name).unlink(missing_ok=True)
    release = _output("apt-ftparchive", *options, "release", ".", place=lists)
    (lists / "Release").write_bytes(release)
    sign = ("gpg", "--batch", "--yes", "--local-user", key, "--digest-algo", "SHA512")
    _output(*sign, "--clearsign", "--output", "InRelease", "Release", place=lists)
    _output(*sign, "--armor", "--detach-sign", "--output", "Release.gpg", "Release", place=lists)


def _index_rpms(files: Sequence[Path], place: Path, key: str) -> None:
    """Copy the packages of dnf, write their lists, and sign these."""
    place.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy2(file, place)
    _output("createrepo_c", "--quiet", "--update", ".", place=place)
    sign = ("gpg", "--batch", "--yes", "--local-user", key, "--armor", "--detach-sign")
    _output(*sign, "repodata/repomd.xml", place=place)


def _output(*argv: str, place: Path) -> bytes:
    return subprocess.run(argv, cwd=place, check=True, stdout=subprocess.PIPE).stdout


def main() -> str | None:
    """Make the repositories; return what is in the way."""
    parser = argparse.ArgumentParser(prog="python3 -m deploy.repository", description=__doc__)
    parser.add_argument("--key", required=True, help="the key in your GnuPG that signs the lists")
    options = parser.parse_args()
    files = sorted(it for it in (REPOSITORY / "dist").glob("*") if it.suffix in {".deb", ".rpm"})
    if not files:
        return "there is no package in dist/; make one: make package"
    needs = _NEEDS | (_NEEDS_OF_DNF if any(it.suffix == ".rpm" for it in files) else {})
    missing = [package for program, package in needs.items() if not shutil.which(program)]
    if missing and packages.can_install():
        packages.install(missing)
    elif missing:
        return f"install what is missing: apt-get install {' '.join(missing)}"
    try:
        for place in make(files, options.key, PLACE):
            print_line(f"Made {place}")
    except LookupError as fault:
        return str(fault)
    except subprocess.CalledProcessError as fault:
        return f"{fault.cmd[0]} failed; the reason is above"
    return None


if __name__ == "__main__":
    sys.exit(main())
