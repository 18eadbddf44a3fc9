"""The repository of packages: a real apt takes packages from it, and believes nobody else."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import repository

pytestmark = [pytest.mark.needs("apt-ftparchive", "gpg"), pytest.mark.timeout(120)]

CONTROL = """\
Package: parley
Version: {version}
Architecture: amd64
Maintainer: Nobody <nobody@parley.invalid>
Description: a package of a test
"""


def typed(*argv: str | Path) -> str:
    """Run a program, and return what it prints."""
    done = subprocess.run(
        list(map(str, argv)),
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def make_package(version: str, into: Path) -> Path:
    """Build a package that has nothing but its name and version."""
    content = into / "content"
    (content / "DEBIAN").mkdir(parents=True, exist_ok=True)
    (content / "DEBIAN/control").write_text(CONTROL.format(version=version))
    file = into / f"parley_{version}_amd64.deb"
    typed("dpkg-deb", "--build", "--root-owner-group", content, file)
    return file


@pytest.fixture(name="key")
def _key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A key of a maker, in a GnuPG of this test."""
    home = tmp_path / "g"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    options = ("--batch", "--passphrase", "", "--pinentry-mode", "loopback")
    typed("gpg", *options, "--quick-generate-key", "maker@parley.invalid", "ed25519", "sign")
    yield "maker@parley.invalid"
    subprocess.run(["gpgconf", "--kill", "all"], check=True, env=os.environ)


class Apt:
    """A host's apt, with folders of its own."""

    def __init__(self, place: Path, source: Path, suite: str) -> None:
        """Take packages from a repository, as its documentation says."""
        self._place = place
        for folder in ("etc/apt/sources.list.d", "state/lists/partial", "cache/archives/partial"):
            (place / folder).mkdir(parents=True)
        (place / "status").touch()
        line = f"[signed-by={source}/{repository.PUBLIC_KEY}] file:{source}/apt {suite} main"
        (place / "etc/apt/sources.list").write_text(f"deb {line}\n")

    def type(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program of apt, and return how it ended."""
        options = (
            f"Dir={self._place}",
            f"Dir::Etc={self._place}/etc/apt",
            f"Dir::State={self._place}/state",
            f"Dir::State::status={self._place}/status",
            f"Dir::Cache={self._place}/cache",
            "APT::Architecture=amd64",
            "APT::Sandbox::User=",
        )
        argv = [program, *(f"-o{option}" for option in options), *words]
        return subprocess.run(argv, check=False, capture_output=True, text=True)


@pytest.mark.nightly
def test_apt_sees_versions_that_come_later(tmp_path: Path, key: str) -> None:
    """A later version is the candidate, of the release that the host has."""
    place = tmp_path / "repository"
    made = make_package("1.0.0+deb12", tmp_path)
    assert repository.make([made], key, place) == [place / "apt"]
    apt = Apt(tmp_path / "host", place, "bookworm")
    assert apt.type("apt-get", "update").returncode == 0
    assert "Candidate: 1.0.0+deb12" in apt.type("apt-cache", "policy", "parley").stdout
    later = [make_package(version, tmp_path) for version in ("1.1.0+deb12", "1.2.0+deb13")]
    repository.make(later, key, place)
    assert apt.type("apt-get", "update").returncode == 0
    told = apt.type("apt-cache", "policy", "parley").stdout
    assert "Candidate: 1.1.0+deb12" in told
    assert "1.0.0+deb12" in told
    assert apt.type("apt-get", "install", "--simulate", "parley").returncode == 0


@pytest.mark.nightly
def test_apt_refuses_what_the_maker_has_not_signed(tmp_path: Path, key: str) -> None:
    """Lists and packages that somebody else has changed are not believed."""
    place = tmp_path / "repository"
    repository.make([make_package("1.0.0+deb12", tmp_path)], key, place)
    [listed] = (place / "apt").glob("dists/bookworm/main/*/Packages")
    listed.write_text(listed.read_text().replace("1.0.0", "9.9.9"))
    assert apt_fails(Apt(tmp_path / "one", place, "bookworm"))
    shutil.rmtree(place / "apt/dists")
    repository.make([make_package("1.0.0+deb12", tmp_path)], key, place)
    assert not apt_fails(Apt(tmp_path / "two", place, "bookworm"))
    [signed] = (place / "apt").glob("dists/bookworm/InRelease")
    signed.write_text(signed.read_text().replace("Origin: Parley", "Origin: Person"))
    assert apt_fails(Apt(tmp_path / "three", place, "bookworm"))


def apt_fails(apt: Apt) -> bool:
    """Return whether apt refuses the lists of a repository."""
    return apt.type("apt-get", "-oAPT::Update::Error-Mode=any", "update").returncode != 0


def test_a_package_that_names_no_release_is_refused(tmp_path: Path, key: str) -> None:
    """A package belongs to one release of Debian or Ubuntu, or into no repository."""
    made = make_package("1.0.0", tmp_path)
    with pytest.raises(LookupError, match="does not tell which of deb12, deb13"):
        repository.make([made], key, tmp_path / "repository")
