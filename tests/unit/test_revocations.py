"""Revocations: what they end, and who may make them."""

from __future__ import annotations

import pytest

from node.model import times
from node.trust.keys import NodeKey
from node.trust.lineage import Lineage
from node.trust.revocations import (
    DISPUTED,
    RevokedKey,
    Ruling,
    read_revocation,
    ruling,
    sign_revocation,
)
from node.trust.signer import Signer
from node.trust.statements import InvalidStatementError, StatementKind

NOW = 1_800_000_000 * times.SECOND
FIRST = NodeKey.generate()
SECOND = FIRST.succeeded_by(NodeKey.generate(), NOW)
THIEF = FIRST.succeeded_by(NodeKey.generate(), NOW)


def _revoked(by: NodeKey, key: NodeKey = FIRST) -> str:
    return sign_revocation(Signer(by, lambda: NOW), key.public_text)


def _ruling(by: NodeKey, known: NodeKey, later: int = 0, key: NodeKey = FIRST) -> Ruling:
    return ruling(read_revocation(_revoked(by, key)), known.lineage, NOW, NOW + later)


def test_a_key_ends_its_own_node() -> None:
    """A key that is the one of today ends the node, by its own signature."""
    assert _ruling(FIRST, FIRST) is Ruling.NODE
    assert _ruling(SECOND, SECOND, key=SECOND) is Ruling.NODE


def test_a_later_key_ends_an_earlier_one_alone() -> None:
    """A revocation of a replaced key by the one of today leaves the node as it is."""
    assert _ruling(SECOND, SECOND) is Ruling.KEY


def test_a_revocation_made_beforehand_wins_over_a_thief() -> None:
    """A revocation by a key takes back a succession of the last thirty days, and no older one."""
    assert _ruling(FIRST, THIEF, DISPUTED - 1) is Ruling.NODE
    assert _ruling(FIRST, THIEF, DISPUTED) is Ruling.KEY


def test_the_other_successor_has_no_more_say_than_the_key() -> None:
    """A revocation by another successor of the key than the known one counts as by the key."""
    assert _ruling(SECOND, THIEF, DISPUTED - 1) is Ruling.NODE
    assert _ruling(SECOND, THIEF, DISPUTED) is Ruling.KEY


def test_an_unknown_key_has_nothing() -> None:
    """A revocation of a key that no known node had ends nothing."""
    assert _ruling(FIRST, NodeKey.generate()) is Ruling.NOTHING
    assert ruling(read_revocation(_revoked(FIRST)), None, 0, NOW) is Ruling.NOTHING


@pytest.mark.parametrize("by", [FIRST, NodeKey.generate()])
def test_nobody_else_revokes_a_key(by: NodeKey) -> None:
    """A key is revoked by itself and by those that follow it, not by earlier or other ones."""
    with pytest.raises(InvalidStatementError, match="has no say"):
        read_revocation(_revoked(by, SECOND))


def test_a_statement_of_another_kind_is_no_revocation() -> None:
    """A statement that was signed for something else revokes nothing."""
    text = Signer(FIRST, lambda: NOW).statement(StatementKind.PART, {"key": FIRST.public_text})
    with pytest.raises(InvalidStatementError):
        read_revocation(text)


def test_what_a_revoked_key_forbids() -> None:
    """A revoked key forbids what ends with it, and if it ended its node what follows it, too."""
    alone, with_node = (RevokedKey(FIRST.public_text, ends_node=it) for it in (False, True))
    assert alone.forbids(Lineage(FIRST.public_text))
    assert not alone.forbids(SECOND.lineage)
    assert with_node.forbids(SECOND.lineage)
    assert not with_node.forbids(NodeKey.generate().lineage)
