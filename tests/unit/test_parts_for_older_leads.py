"""Parts that failed after measuring, as they are sent to leads of this and of earlier programs."""

from __future__ import annotations

from unittest.mock import AsyncMock
from uuid import UUID

import pytest

from node.client.peers import Peer
from node.model.features import ATTRIBUTE, Feature
from node.model.wire.participants import PartMessage

MEASURED = PartMessage(
    run=UUID(int=1),
    result={"sent": 5},
    reason="iperf3: the client has terminated",
    started_at=1,
    finished_at=2,
    command=None,
    signature="e30.e30.AA",
)


@pytest.mark.parametrize("knows", [True, False])
async def test_a_part_that_failed_after_measuring(*, knows: bool) -> None:
    """An earlier lead is sent the reason alone, without the signature of what it cannot store."""
    peers = AsyncMock()
    attributes = {f"{ATTRIBUTE}{Feature.FAILED_RESULTS}": knows}
    await Peer(peers, "ed25519:x", "b", None, attributes).send_part(MEASURED)
    (*_, sent) = peers.send.await_args.args
    alone = MEASURED.model_copy(update={"result": None, "signature": None})
    assert sent == (MEASURED if knows else alone)
