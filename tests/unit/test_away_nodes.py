"""A node that is away is asked one question at a time, whoever else wants to ask it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from node.model import times
from node.model.errors import PeerUnreachable
from node.runtime.settings import Settings
from node.store.core import Core
from node.store.database import Database
from node.store.nodes import KnownNode
from node.tasks.away_nodes import AwayNodes
from tests.support.clocks import START, ManualClock


def _node(unreachable_since: int | None) -> KnownNode:
    seen, is_self = START, False
    return KnownNode(
        "b", "b", "http://b", "b", is_self, seen, seen, unreachable_since, None, None, None, {}, 8
    )


class _Line:
    """A node that answers questions once it is told to, and counts them."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def ask(self) -> str:
        """Return the answer."""
        self.asked += 1
        return await self.answers


def _away(clock: ManualClock, tmp_path: Path) -> AwayNodes:
    settings = Settings(state_dir=tmp_path)
    return AwayNodes(Core(cast("Database", None), clock, "a", settings))


@pytest.mark.parametrize(("since", "asked"), [(None, 40), (START, 1)])
async def test_the_others_have_the_silence_that_the_first_one_met(
    clock: ManualClock, tmp_path: Path, since: int | None, asked: int
) -> None:
    """Forty questions to a node that is away are one, and to one that is there forty."""
    away, line = _away(clock, tmp_path), _Line()
    asking = [asyncio.create_task(away.ask(_node(since), line.ask)) for _ in range(40)]
    await clock.sleep(0)
    line.answers.set_exception(PeerUnreachable("b cannot be reached"))
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(answer) for answer in answers] == ["b cannot be reached"] * 40
    assert line.asked == asked


async def test_a_node_that_is_there_again_is_asked_everything(
    clock: ManualClock, tmp_path: Path
) -> None:
    """Its first answer lets the other questions go; after a silence it is asked again soon."""
    away, line = _away(clock, tmp_path), _Line()
    node = _node(START)
    asking = [asyncio.create_task(away.ask(node, line.ask)) for _ in range(3)]
    await clock.sleep(0)
    assert line.asked == 1
    line.answers.set_result("yes")
    assert await asyncio.gather(*asking) == ["yes"] * 3
    silent = _Line()
    silent.answers.set_exception(PeerUnreachable("no answer"))
    for _ in range(2):
        with pytest.raises(PeerUnreachable):
            await away.ask(node, silent.ask)
    assert silent.asked == 1
    clock.advance(6 * times.SECOND)
    assert await away.ask(node, line.ask) == "yes"
