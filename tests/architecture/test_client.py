"""The synchronous client is as the asynchronous one, and its wheel has all that it imports."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable

from deploy.client import DEPENDENCIES, REPOSITORY, used_modules
from parley_client import AsyncParley, Parley


def test_both_clients_have_the_same_methods() -> None:
    """Every method that can be awaited can be called, with the same parameters and its sentence."""
    awaited, called = _methods(AsyncParley), _methods(Parley)
    assert called.keys() == awaited.keys()
    for name, method in awaited.items():
        assert list(inspect.signature(called[name]).parameters) == list(
            inspect.signature(method).parameters
        ), name
        assert called[name].__doc__ == method.__doc__, name


def _methods(kind: type) -> dict[str, Callable[..., object]]:
    members = inspect.getmembers(kind, inspect.isfunction)
    return {name: method for name, method in members if not name.startswith("_")}


def test_the_client_needs_nothing_of_a_service() -> None:
    """The wheel has no module that runs a node: no database, no tools, no command line."""
    folders = {module.split(".")[1] for module in used_modules() if "." in module}
    assert folders == {"client", "model", "runtime", "trust"}


def test_the_client_imports_declared_libraries_only() -> None:
    """Each library that the modules in the wheel import is among its dependencies."""
    paths = [REPOSITORY.joinpath(*module.split(".")) for module in used_modules()]
    imported = set()
    for path in paths:
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
            elif isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
    brought = {"pydantic_core": "pydantic"}
    foreign = {brought.get(name, name) for name in imported - sys.stdlib_module_names - {"node"}}
    assert foreign <= set(DEPENDENCIES)
