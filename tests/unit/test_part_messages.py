"""Messages with a participant's part: plausible circumstances, and output that fits."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from node.execution.launcher import output_text
from node.model.wire.participants import OUTPUT_LENGTH_MAX, PartMessage
from node.plugins.contracts import Output
from tests.support.circumstances import told


@pytest.mark.parametrize("lie", [{"busy": 2}, {"busy": "NaN"}, {"count": -1}, {"more": 1}])
def test_lies_about_circumstances_are_refused(lie: dict[str, Any]) -> None:
    """Impossible circumstances are refused."""
    part: dict[str, Any] = {"run": str(UUID(int=1)), "result": {}, "reason": None, "command": None}
    times = {"started_at": None, "finished_at": None}
    PartMessage.model_validate({**part, **times, "circumstances": told()})
    with pytest.raises(ValidationError):
        PartMessage.model_validate({**part, **times, "circumstances": told(**lie)})


def test_of_long_output_beginning_and_end_are_kept() -> None:
    """Long output keeps its beginning and end, and says how much is missing between them."""
    text = "begin" + "x" * 100_000 + "end"
    kept = output_text(Output(0, text.encode(), b"\xff\0"))
    assert len(kept) == OUTPUT_LENGTH_MAX
    assert kept.startswith("beginxxx")
    assert kept.endswith("xend\ufffd\ufffd")
    assert "characters are left out" in kept
    assert output_text(Output(0, b"short", b"")) == "short"
