"""A browser for the tests of the page, and a node to look at in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import page_scene as scene
from tests.support.browser import chromium
from tests.support.needs import fixture_needs
from tests.support.page_stand_in import StandIn

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
@fixture_needs("chromium")
def browser() -> Iterator[str]:
    """Start one browser for all tests of a module; each gets its own context."""
    with chromium() as address:
        yield address


@pytest.fixture
def ordinary() -> StandIn:
    """Return a stand-in with the runs of an ordinary day."""
    stand_in = StandIn()
    scene.ordinary_day(stand_in)
    return stand_in
