"""Functions are small enough to be read in one go. A module ends where its subject ends."""

from __future__ import annotations

from tests.architecture.sources import functions, parsed

FUNCTION_LINES_MAX = 60
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
