"""Browsers for the tests of the page, and nodes to look at in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.conftest import TEMPLATE
from tests.support import page_scene as scene
from tests.support.browser import chromium
from tests.support.databases import copy_database
from tests.support.mesh_day import MeshDay, mesh_day
from tests.support.needs import fixture_needs
from tests.support.page_stand_in import StandIn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from node.postgres.cluster import PrivateCluster


@pytest.fixture(scope="session")
@fixture_needs("chromium")
def browser() -> Iterator[str]:
    """Start one browser for all tests; each gets its own context."""
    with chromium() as address:
        yield address


@pytest.fixture
def ordinary() -> StandIn:
    """Return a stand-in with the runs of an ordinary day."""
    stand_in = StandIn()
    scene.ordinary_day(stand_in)
    return stand_in


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def day(
    cluster: PrivateCluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[MeshDay]:
    """Serve a node with a day of a mesh in its tables."""
    name = "test_mesh_day"
    await copy_database(cluster.dsn("postgres"), name, TEMPLATE)
    async with mesh_day(cluster.dsn(name), tmp_path_factory.mktemp("mesh-day")) as made:
        yield made
