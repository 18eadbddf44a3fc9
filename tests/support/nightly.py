"""Leaves long tests to ``make nightly``: whole functions, or all but the first of their cases.

``make test`` has eight minutes on two processors. A test that takes seconds stays there if nothing
else would find what it finds; where many cases differ in a value only, one of them stays.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all cases but the first of the functions marked ``mostly_nightly``."""
    for item in items:
        if item.get_closest_marker("mostly_nightly") is None:
            continue
        assert isinstance(item, pytest.Function)
        if any(item.callspec.indices.values()):
            item.add_marker(pytest.mark.nightly)
