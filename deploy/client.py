"""Makes the Python client: its synchronous half, and a wheel that needs no package of the node.

``python -m deploy.client`` writes ``parley_client/synchronous.py`` from the asynchronous client,
and the wheel ``parley-client`` into ``dist``. The wheel has those modules of ``node`` that the
client uses inside itself, as ``parley_client._node``, so that it works beside any other package
called ``node``.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SYNCHRONOUS = REPOSITORY / "parley_client" / "synchronous.py"
INSIDE = "parley_client._node"
DEPENDENCIES = ("aiohttp", "cronsim", "cryptography", "portion", "pydantic", "tzdata")
"""The libraries that the modules of the client use; the versions are those of the node."""

_OWN = frozenset({"every"})
"""Methods that both halves have by hand."""
_IMPORT = re.compile(r"^(\s*)(from|import) node\b", re.MULTILINE)
_HEAD = '''"""The synchronous client of a node, made from the other one by deploy/client.py."""

from __future__ import annotations

{imports}

class Parley(Blocking):
    """A node's API; use it with ``with``.

    Methods return the documents that the API describes, or raise the error of a problem document.
    """

    def __init__(
        self,
        server: str = "http://127.0.0.1:8642",
        token: str | None = None,
        *,
        identity: str | None = None,
        patience_s: float = 30,
        plain_http: bool = False,
    ) -> None:
        """Take what :class:`AsyncParley` takes."""
        super().__init__(
            AsyncParley(
                server, token, identity=identity, patience_s=patience_s, plain_http=plain_http
            )
        )
'''


def synchronous_source() -> str:
    """Return the source text of ``parley_client/synchronous.py``."""
    from parley_client.asynchronous import AsyncParley  # noqa: PLC0415 - needs the environment

    methods = [
        _method_source(name, member)
        for name, member in inspect.getmembers(AsyncParley, _is_awaited)
        if not name.startswith("_") and name not in _OWN
    ]
    body = "\n".join(methods)
    return _formatted_source(_HEAD.format(imports=_import_lines(body)) + body)


def _is_awaited(member: object) -> bool:
    return inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)


def _method_source(name: str, member: object) -> str:
    signature = inspect.signature(member)  # type: ignore[arg-type] # it is a function
    run = "_each" if inspect.isasyncgenfunction(member) else "_run"
    given = [
        each.name if each.kind is each.POSITIONAL_OR_KEYWORD else f"{each.name}={each.name}"
        for each in list(signature.parameters.values())[1:]
    ]
    said = (
        (inspect.getdoc(member) or "").replace("\n", "\n        ").replace("\n        \n", "\n\n")
    )
    end = "\n        " if "\n" in said else ""
    return (
        f"\n    def {name}{_signature_text(signature)}:\n"
        f'        """{said}{end}"""\n'
        f"        return self.{run}(self._client.{name}({', '.join(given)}))\n"
    )


def _signature_text(signature: inspect.Signature) -> str:
    return str(signature).replace("'", "").replace("AsyncIterator[", "Iterator[")


def _import_lines(body: str) -> str:
    """Return the imports that the annotations need, as the modules of the client have them."""
    known = {"AsyncParley": "parley_client.asynchronous", "Blocking": "parley_client.blocking"}
    defined = {"TimeSpan": "node.client.users", "Page": "node.client.responses"}
    needed = set(re.findall(r"\b[A-Z]\w+|\bAny\b", re.sub(r'"""(?s:.*?)"""', "", body)))
    for path in sorted((REPOSITORY / "node" / "client").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                known |= {alias.name: node.module for alias in node.names if not alias.asname}
    known |= defined | {"Iterator": "collections.abc"}
    wanted = sorted(
        (known[name], name) for name in {*needed, "AsyncParley", "Blocking"} & set(known)
    )
    return "\n".join(f"from {module} import {name}" for module, name in wanted) + "\n"


def _formatted_source(text: str) -> str:
    """Return the source of a module after ``ruff check --fix`` and ``ruff format``."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    for arguments in (("check", "--fix-only", "--quiet"), ("format", "--quiet")):
        done = subprocess.run(
            [ruff, *arguments, "--stdin-filename", str(SYNCHRONOUS), "-"],
            input=text,
            capture_output=True,
            check=True,
            text=True,
            cwd=REPOSITORY,
        )
        text = done.stdout
    return text


# -- the wheel -------------------------------------------------------------------------------------


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
    SYNCHRONOUS.write_text(synchronous_source(), encoding="utf-8")
    print(build_wheel(REPOSITORY / "dist"))
