"""Builds the Debian package: ``python3 -m deploy.package`` writes ``dist/parley_VERSION_ARCH.deb``.

It stages a copy of the files that git knows, adds the changelog that Debian's tools want, and runs
``dpkg-buildpackage``. Root gets what the build needs installed first. The environment in a package
is for the Python of one release of Debian or Ubuntu, so the version ends with that release
(``0.4.0+deb12``), and a host that goes on to the next release finds a later version there.
``--twice`` builds it once more, and fails unless both packages are equal, byte for byte.

It uses the standard library only, because it runs before the environment exists.
"""

from __future__ import annotations

import argparse
import email.utils
import filecmp
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from deploy import packages
from deploy.progress import print_line

REPOSITORY = Path(__file__).resolve().parent.parent
STAGE = REPOSITORY / "build" / "package" / "parley"
AGAIN = REPOSITORY / "build" / "again"
NEEDS = ["dpkg-dev", "debhelper", "fakeroot", "python3-venv"]


def version() -> str:
    """Return the version of the program."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def built_for(os_release: str) -> str:
    """Return the end of the version of a package, by what ``/etc/os-release`` says."""
    fields = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    system, number = (fields.get(name, "").strip('"') for name in ("ID", "VERSION_ID"))
    return f"+{'deb' if system == 'debian' else system}{number}"


def commit_second() -> int:
    """Return the second since 1970 at which the last commit was made."""
    argv = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(argv, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return int(done.stdout)


def changelog(number: str) -> str:
    """Return a changelog in Debian's form, whose only entry points to CHANGELOG.md."""
    control = (REPOSITORY / "deploy/debian/control").read_text()
    maintainer = control.partition("Maintainer: ")[2].partition("\n")[0]
    date = email.utils.format_datetime(datetime.fromtimestamp(commit_second(), UTC))
    return (
        f"parley ({number}) stable; urgency=medium\n\n"
        f"  * See /usr/share/doc/parley/CHANGELOG.md.gz.\n\n -- {maintainer}  {date}\n"
    )


def stage(number: str) -> None:
    """Copy the repository's files to where the package is built."""
    shutil.rmtree(STAGE.parent, ignore_errors=True)
    STAGE.mkdir(parents=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = REPOSITORY / name, STAGE / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    debian = STAGE / "debian"
    shutil.copytree(STAGE / "deploy/debian", debian)
    for unit in sorted((STAGE / "deploy").glob("parley-*.service")):
        shutil.copy2(unit, debian / f"parley.{unit.name}")
    shutil.copy2(STAGE / "deploy/parley-tools.socket", debian / "parley.parley-tools.socket")
    shutil.copy2(STAGE / "deploy/parley.sysusers", debian / "parley.sysusers")
    (debian / "changelog").write_text(changelog(number))


def build(number: str, target: Path) -> list[Path]:
    """Build the package into a folder; return its files, or none if that failed."""
    stage(number)
    built = subprocess.run(
        ["dpkg-buildpackage", "--build=binary", "--unsigned-changes", "--unsigned-source"],
        cwd=STAGE,
        check=False,
    )
    target.mkdir(parents=True, exist_ok=True)
    files = [] if built.returncode else sorted(STAGE.parent.glob("parley_*.deb"))
    return [Path(shutil.move(file, target / file.name)) for file in files]


def main() -> str | None:
    """Build the package; return the error message if that fails."""
    parser = argparse.ArgumentParser(prog="python3 -m deploy.package", description=__doc__)
    parser.add_argument("--twice", action="store_true", help="build again, and compare")
    options = parser.parse_args()
    missing = [it for it in ("dpkg-buildpackage", "dh", "fakeroot") if not shutil.which(it)]
    if missing and packages.can_install():
        packages.install(NEEDS)
    elif missing:
        return f"{' and '.join(missing)} missing; install them: apt-get install {' '.join(NEEDS)}"
    number = version() + built_for(Path("/etc/os-release").read_text(encoding="utf-8"))
    print_line(f"Building parley {number} in {STAGE}")
    files = build(number, REPOSITORY / "dist")
    if not files:
        return "the package could not be built; the reason is above"
    for file in files:
        print_line(f"Built {file}")
    if options.twice:
        again = build(number, AGAIN)
        if not again or any(
            not filecmp.cmp(one, other, shallow=False)
            for one, other in zip(files, again, strict=True)
        ):
            return f"the second build differs; it is in {AGAIN}"
        print_line("A second build is equal, byte for byte")
    return None


if __name__ == "__main__":
    sys.exit(main())
