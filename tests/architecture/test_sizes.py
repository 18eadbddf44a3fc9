"""Functions and modules small enough to be read in one go."""

from __future__ import annotations

from tests.architecture.sources import files, functions, parsed, where

FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 500
FOLDERS = ("node", "lead", "tests")


def test_functions_are_short() -> None:
    """No function, docstring included, is longer than a screen."""
    long = [
        f"{path}:{function.lineno} {function.name}: {lines} lines"
        for path, tree in parsed(*FOLDERS)
        for function in functions(tree)
        if (lines := (function.end_lineno or function.lineno) - function.lineno + 1)
        > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_modules_are_short() -> None:
    """No module has grown into two."""
    long = [
        f"{where(path)}: {lines} lines"
        for path in files(*FOLDERS)
        if (lines := len(path.read_text().splitlines())) > MODULE_LINES_MAX
    ]
    assert long == []
