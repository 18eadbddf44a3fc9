"""Everything public in ``lead/policy`` is used by the services, not by tests only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POLICY = "lead.policy."

Name = tuple[str, str]
"""A module and a name at its top level."""


@dataclass
class _Module:
    """The definitions of a module, and what each part of it refers to.

    ``imported`` has what names stand for: a module, or a name of one. What is outside definitions,
    and all of a module that is no policy, counts as used: its parts are ``used``.
    """

    name: str
    imported: dict[str, str | Name] = field(default_factory=dict)
    defined: dict[str, set[Name]] = field(default_factory=dict)
    used: set[Name] = field(default_factory=set)


def _parsed(path: Path, modules: set[str]) -> _Module:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    tree = ast.parse(path.read_text())
    module = _Module(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                whole = f"{node.module}.{each.name}"
                known = whole if whole in modules else (node.module, each.name)
                module.imported[each.asname or each.name] = known
    own = {part.name for part in tree.body if isinstance(part, ast.FunctionDef | ast.ClassDef)}
    for part in tree.body:
        if name.startswith(POLICY) and isinstance(part, ast.FunctionDef | ast.ClassDef):
            module.defined[part.name] = set(_references(part, module, own)) - {(name, part.name)}
        else:
            module.used |= set(_references(part, module, own))
    return module


def _references(part: ast.AST, module: _Module, own: set[str]) -> Iterator[Name]:
    for node in ast.walk(part):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = module.imported.get(node.value.id)
            if isinstance(found, str):
                yield found, node.attr
        elif isinstance(node, ast.Name):
            found = module.imported.get(node.id)
            if isinstance(found, tuple):
                yield found
            elif node.id in own:
                yield module.name, node.id


def unused(paths: list[Path]) -> list[str]:
    """Return the public definitions of policies to which nothing leads that services run."""
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in paths
    }
    modules = [_parsed(path, names) for path in paths]
    defined = {(each.name, name): to for each in modules for name, to in each.defined.items()}
    reached: set[Name] = set()
    left = [name for each in modules for name in each.used]
    while left:
        name = left.pop()
        if name in defined and name not in reached:
            reached.add(name)
            left += defined[name]
    return sorted(
        f"{module}.{name}" for module, name in defined.keys() - reached if not name.startswith("_")
    )


@pytest.mark.nightly
def test_no_policy_is_there_for_tests_only() -> None:
    """Each public function and class of the policies is reached from what the services run."""
    paths = [path for room in ("node", "lead") for path in sorted((ROOT / room).rglob("*.py"))]
    assert unused(paths) == []
