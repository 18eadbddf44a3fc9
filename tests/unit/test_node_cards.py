"""Cards of other nodes: each node writes its own, and so each text in it has a bound."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from node.model.wire.nodes import ATTRIBUTES_MAX, NodeCard
from tests.unit.test_mailboxes import CARD


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "1" * 101},
        {"address": "a" * 300},
        {"name": "n" * 64},
        {"attributes": {f"a{number}": 1 for number in range(ATTRIBUTES_MAX + 1)}},
        {"attributes": {"country": "D" * 201}},
    ],
)
def test_a_card_is_bounded(changes: dict[str, object]) -> None:
    """A card with a longer text, or more attributes, is refused as a whole."""
    document = CARD.model_dump(mode="json")
    NodeCard.model_validate({**document, "version": "1" * 100})
    with pytest.raises(ValidationError):
        NodeCard.model_validate({**document, **changes})
