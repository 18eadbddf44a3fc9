"""The exception hierarchy: other programs rely on the codes."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from node.model import errors
from node.model.errors import ParleyError
from tests.architecture.sources import PRODUCT, files, module_name


@pytest.fixture(scope="module")
def tree() -> list[type[ParleyError]]:
    """Every class of error, wherever it is defined."""
    for path in files(*PRODUCT):
        if path.stem != "__main__":
            importlib.import_module(module_name(path))
    return [ParleyError, *descendants(ParleyError)]


def descendants(parent: type[ParleyError]) -> Iterator[type[ParleyError]]:
    """Yield all subclasses, however deep."""
    for child in parent.__subclasses__():
        yield child
        yield from descendants(child)


def test_every_error_has_a_code_of_its_own(tree: list[type[ParleyError]]) -> None:
    """Each class names its own code, and no two classes share one."""
    inherited = [error.__name__ for error in tree if "code" not in vars(error)]
    shared = [code for code, times in Counter(error.code for error in tree).items() if times > 1]
    assert inherited == []
    assert shared == []


def test_codes_can_stand_in_an_address(tree: list[type[ParleyError]]) -> None:
    """A code is lower-case words with hyphens, because it becomes a problem's ``type``."""
    assert [error.code for error in tree if not re.fullmatch(r"[a-z]+(-[a-z]+)*", error.code)] == []


def test_the_drawing_is_complete(tree: list[type[ParleyError]]) -> None:
    """Every class of error is in the tree in the module's docstring."""
    drawn = set(re.findall(r"\w+", errors.__doc__ or ""))
    assert [error.__name__ for error in tree if error.__name__ not in drawn] == []
