"""A name stands for one node; an address that several nodes share stands for none of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from node.model.contexts import offered_contexts
from node.model.naming import NodeIndex, find_clash


@dataclass(frozen=True)
class _Card:
    name: str
    address: str
    url: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    is_self: bool = False

    @property
    def identity(self) -> str:
        return f"key of {self.name} at {self.address}"


OWN = _Card("a", "192.0.2.1", "http://a.example:8642", is_self=True)
B = _Card("b", "192.0.2.2", "http://[2001:db8::2]:8642", {"context:interface:x": "192.0.2.20"})


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        (
            _Card("aa-hostile", "b"),
            "the address of aa-hostile is b, the name of the node b",
        ),
        (_Card("aa-hostile", "B."), "the name of the node b"),
        (_Card("x", "x", "http://a:1"), "the host of the URL of x is a, the name of this node"),
        (
            _Card("x", "x", None, {"context:address:192.0.2.7": "b"}),
            "the address in the context address:192.0.2.7 of x is b, the name",
        ),
        (_Card("b", "x"), "another node named b is known here already: the node b, with the key"),
        (_Card("a", "x"), "another node named a is known here already: this node, with the key"),
        (_Card("192.0.2.2", "x"), "its name 192.0.2.2 is the address of the node b"),
        (_Card("3221225986", "x"), "its name 3221225986 is the address of the node b"),
        (_Card("a.example", "x"), "its name a.example is the host of the URL of this node"),
        (_Card("192.0.2.20", "x"), "is the address in the context interface:x of the node b"),
    ],
)
def test_a_clash(card: _Card, reason: str) -> None:
    """A card whose words stand for another node is refused: what clashes, with whom, what to do."""
    said = find_clash(card, [OWN, B])
    assert said is not None
    assert reason in said
    assert "let its owner" in said
    assert said.endswith(("or remove b", "or give this node another name (PARLEY_NAME)"))


def test_no_clash() -> None:
    """A node keeps its own words, and nodes may share addresses and hosts."""
    assert find_clash(OWN, [OWN, B]) is None
    assert find_clash(_Card("c", "192.0.2.2", "http://a.example:8643"), [OWN, B]) is None
    assert find_clash(_Card("c.example", "c.example", "https://c.example"), [OWN, B]) is None


def test_names_come_first() -> None:
    """A word is a name, or else an address or a host that one node alone has."""
    c = _Card("c", "192.0.2.2", "http://a.example:8643")
    index = NodeIndex([OWN, B, c])
    assert index.find("A") is OWN
    assert index.find("2001:db8:0::2") is B
    assert index.find("192.0.2.1") is OWN
    assert index.find("a.example:8643") is c
    assert index.find("192.0.2.2") is None
    assert index.nodes_sharing("192.0.2.2") == [B, c]
    assert index.nodes_sharing("a.EXAMPLE") == [OWN, c]
    assert (
        index.nodes_sharing("192.0.2.1")
        == index.nodes_sharing("b")
        == index.nodes_sharing("nobody")
        == []
    )
    assert index.find("") is None


def test_an_address_that_is_none_is_no_context() -> None:
    """A text that a card calls an address, and that is none, never becomes an option."""
    attributes = {"context:interface:x": "-oX", "context:interface:y": 7, "site": "x"}
    assert offered_contexts(attributes | {"context:interface:z": "z.example"}) == {
        "interface:z": "z.example"
    }
