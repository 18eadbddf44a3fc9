"""The table of the metrics, read from the module that makes them.

A metric exists only once a node serves it, so the source is read instead: each call or row whose
first two words are the name of a metric and a sentence about it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from docs.generator.markdown import code, plain, table
from node.operation import metrics
from node.runtime import instruments

_PREFIX = "parley_"
_COUNTER = "Counter"


def metrics_table() -> str:
    """Return the table of the metrics."""
    rows = ((code(name), plain(", ".join(labels)), plain(text)) for name, text, labels in found())
    return table(("metric", "labels", ""), sorted(rows))


def found() -> Iterator[tuple[str, str, list[str]]]:
    """Yield each metric: its name as served, its description, and its labels."""
    for module in (metrics, instruments):
        yield from _found_in(ast.parse(inspect.getsource(module)))


def _found_in(tree: ast.Module) -> Iterator[tuple[str, str, list[str]]]:
    lists = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        words = [_constant(argument) for argument in (_arguments(node) or [])[:2]]
        if len(words) == 2 and words[0].startswith(_PREFIX) and words[1]:  # noqa: PLR2004 - a pair
            counts = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_COUNTER)
            name = words[0] + ("_total" if counts and not words[0].endswith("_total") else "")
            yield name, words[1], _labels(node, lists)
        elif isinstance(node, ast.DictComp):
            yield from _family(node)


def _family(node: ast.DictComp) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the metrics whose names share a beginning: ``f"parley_lead_{name}"`` for each pair."""
    [loop] = node.generators
    made = node.value
    if not (isinstance(made, ast.Call) and isinstance(loop.iter, ast.Tuple) and made.args):
        return
    name = made.args[0]
    if isinstance(name, ast.JoinedStr) and _constant(name.values[0]).startswith(_PREFIX):
        for pair in loop.iter.elts:
            if isinstance(pair, ast.Tuple):
                last, text = (_constant(word) for word in pair.elts)
                yield _constant(name.values[0]) + last, text, _labels(made, {})


def _arguments(node: ast.AST) -> list[ast.expr] | None:
    if isinstance(node, ast.Call):
        return node.args
    return node.elts if isinstance(node, ast.Tuple) else None


def _constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _labels(node: ast.AST, lists: dict[str, ast.expr]) -> list[str]:
    """Return the labels in the list that follows name and description."""
    if not isinstance(node, ast.Call):
        return []
    named = [word.value for word in node.keywords if word.arg in {"labelnames", "labels"}]
    return next(
        (_words(each, lists) for each in [*node.args[2:], *named] if _words(each, lists)), []
    )


def _words(node: ast.expr, lists: dict[str, ast.expr]) -> list[str]:
    if isinstance(node, ast.Name):
        return _words(lists[node.id], lists) if node.id in lists else []
    if isinstance(node, ast.Starred):
        return _words(node.value, lists)
    if isinstance(node, ast.List | ast.Tuple):
        return [word for each in node.elts for word in (_words(each, lists) or [_constant(each)])]
    return []
