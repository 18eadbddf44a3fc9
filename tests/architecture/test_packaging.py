"""The package as users install it: its import names are common words, so they must be ours."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.architecture.sources import PRODUCT, REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
DEBIAN_12 = "3.11.2"
LOCKS = ("deploy/requirements.txt", "deploy/requirements-dev.txt")


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


def test_what_is_to_be_installed_is_ours() -> None:
    """Hints and documents name our distribution, because ``parley`` is another project."""
    files = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "deploy").glob("*.md")]
    files += (REPOSITORY / "docs").rglob("*.md")
    files += [
        path
        for package in PRODUCT
        for kind in ("*.py", "*.md", "*.template")
        for path in (REPOSITORY / package).rglob(kind)
    ]
    named = {
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in files
        for name in re.findall(r"(parley[\w-]*)\[[a-z]", path.read_text())
        if name != PROJECT["name"]
    }
    assert named == set()


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
    """Every production dependency has the same version in development."""

    def pins(lock: str) -> set[str]:
        lines = (REPOSITORY / lock).read_text().splitlines()
        return {line.split()[0] for line in lines if "==" in line}

    runtime, development = (pins(lock) for lock in LOCKS)
    assert runtime - development == set()
    assert runtime != set()


def test_what_is_installed_runs_on_debian_12() -> None:
    """No dependency asks for a later Python than that of the oldest Debian we install on."""
    admitted = {
        f"{it.name} {it.version}": SpecifierSet(str(it.metadata.json.get("requires_python", "")))
        for it in importlib.metadata.distributions()
    }
    assert [name for name, pythons in admitted.items() if DEBIAN_12 not in pythons] == []
    assert DEBIAN_12 in SpecifierSet(PROJECT["requires-python"])
