"""Makes the wheel of the Python client, which needs no package of the node.

``python -m deploy.client`` writes the wheel ``parley-client`` into ``dist``. It has those modules
of ``node`` that the client uses inside itself, as ``parley_client._node``, so that it works beside
any other package called ``node``.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
INSIDE = "parley_client._node"
DEPENDENCIES = ("cronsim", "cryptography", "portion", "pydantic", "tzdata")
"""The libraries that the modules of the client use; the versions are those of the node."""

_IMPORT = re.compile(r"^(\s*)(from|import) node\b", re.MULTILINE)


def build_wheel(directory: Path) -> Path:
    """Build the wheel ``parley-client`` into a directory, and return its path."""
    from hatchling import build  # noqa: PLC0415 - needs the environment

    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="parley-client-") as made:
        _write_sources(Path(made))
        before = Path.cwd()
        try:
            os.chdir(made)
            name = build.build_wheel(str(directory.resolve()))
        finally:
            os.chdir(before)
    return directory / name


def _write_sources(to: Path) -> None:
    for path, place in _module_files():
        target = to / place
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        target.write_text(_IMPORT.sub(rf"\1\2 {INSIDE}", text), encoding="utf-8")
    (to / "parley_client" / "py.typed").touch()
    shutil.copy2(REPOSITORY / "LICENSE", to)
    (to / "pyproject.toml").write_text(_project_text(), encoding="utf-8")


def _project_text() -> str:
    whole = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = [each for each in whole["dependencies"] if re.split(r"[>=<]", each)[0] in DEPENDENCIES]
    return f"""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "parley-client"
version = "{whole["version"]}"
description = "The client of Parley, a scheduler for network measurements"
requires-python = "{whole["requires-python"]}"
license = "{whole["license"]}"
license-files = ["LICENSE"]
classifiers = ["Typing :: Typed"]
dependencies = {needs!r}
[tool.hatch.build.targets.wheel]
packages = ["parley_client"]
"""


def _module_files() -> Iterator[tuple[Path, Path]]:
    """Yield source and destination of each module of the client, and of ``node`` that it uses."""
    for path in sorted((REPOSITORY / "parley_client").glob("*.py")):
        yield path, path.relative_to(REPOSITORY)
    for module in sorted(used_modules()):
        path = _path_of(module)
        place = path.relative_to(REPOSITORY / "node")
        yield path, Path("parley_client") / "_node" / place


def used_modules() -> set[str]:
    """Return the names of the modules of ``node`` that the client imports, directly or not."""
    known: set[str] = set()
    waiting = [
        each
        for path in (REPOSITORY / "parley_client").glob("*.py")
        for each in _imported_modules(path)
    ]
    while waiting:
        module = waiting.pop()
        if module in known or not _path_of(module).exists():
            continue
        known.add(module)
        parts = module.split(".")
        waiting += [".".join(parts[:count]) for count in range(1, len(parts))]
        waiting += _imported_modules(_path_of(module))
    return known


def _imported_modules(path: Path) -> Iterator[str]:
    """Yield the names that a file imports from ``node``; some are members, not modules."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "node":
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _path_of(module: str) -> Path:
    path = REPOSITORY.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


if __name__ == "__main__":
    print(build_wheel(REPOSITORY / "dist"))
