"""Rules for every test: its docstring is a sentence, it never sleeps, and it always runs."""

from __future__ import annotations

import ast
import re

from deploy.packages import NEEDS
from tests.architecture.sources import dotted, functions, nodes, parsed
from tests.support.needs import RIGHTS

SLEEPS = {"time.sleep", "asyncio.sleep"}
EXCUSES = {"skip", "skipif", "skipTest", "importorskip", "xfail"}
DESELECTS = {"pytest_deselected", "pytest_ignore_collect", "collect_ignore", "collect_ignore_glob"}
MECHANISM = "tests/support/needs.py"
SECOND_SENTENCE = re.compile(r"[.!?]\s+[A-Z]")


def one_sentence(docstring: str | None) -> bool:
    """Return whether a docstring is a single sentence with a full stop."""
    text = (docstring or "").strip()
    return text.endswith(".") and "\n\n" not in text and not SECOND_SENTENCE.search(text)


def test_every_test_is_a_sentence() -> None:
    """Each test's docstring is one sentence that says what is true."""
    wordless = [
        f"{path}:{function.lineno} {function.name}"
        for path, tree in parsed("tests")
        for function in functions(tree)
        if function.name.startswith("test_") and not one_sentence(ast.get_docstring(function))
    ]
    assert wordless == []


def test_no_test_sleeps() -> None:
    """A test awaits an event or moves the clock by hand, because a sleep is slow or too short."""
    sleeps = [
        f"{path}:{node.lineno} {dotted(node)}"
        for path, tree in parsed("tests")
        for node in nodes(tree)
        if isinstance(node, ast.Attribute) and dotted(node) in SLEEPS
    ]
    imported = [
        f"{path}:{node.lineno} from {node.module} import sleep"
        for path, tree in parsed("tests")
        for node in nodes(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module in {"time", "asyncio"}
        and any(alias.name == "sleep" for alias in node.names)
    ]
    assert sleeps + imported == []


def test_no_test_is_excused() -> None:
    """No test is skipped or expected to fail; needs are declared, and counted where not met."""
    excused = [
        f"{path}:{node.lineno} {dotted(node)}"
        for path, tree in parsed("tests")
        for node in nodes(tree)
        if isinstance(node, ast.Attribute) and node.attr in EXCUSES and "." in dotted(node)
    ]
    assert excused == []


def test_only_declared_needs_leave_tests_out() -> None:
    """Only one module may deselect tests, and it reports in the last line how many and why."""
    others = [
        f"{path}:{node.lineno}"
        for path, tree in parsed("tests")
        if path != MECHANISM
        for node in nodes(tree)
        if (isinstance(node, ast.Attribute) and node.attr in DESELECTS)
        or (isinstance(node, ast.Name) and node.id in DESELECTS)
        or (isinstance(node, ast.FunctionDef) and node.name in DESELECTS)
    ]
    assert others == []


def test_needs_are_named_in_the_open() -> None:
    """A need is a literal where it is declared, and the table of packages knows it."""
    known = {*NEEDS, *RIGHTS}
    unknown = [
        f"{path}:{node.lineno}"
        for path, tree in parsed("tests")
        for node in nodes(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute | ast.Name)
        and dotted(node.func) in {"pytest.mark.needs", "fixture_needs"}
        for word in node.args
        if isinstance(word, ast.Constant) and word.value not in known
    ]
    assert unknown == []
