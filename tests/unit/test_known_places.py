"""The places of known nodes: where their cards say that they are, read once for each directory."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import cast

from node.execution.known_places import KnownPlaces
from node.peers.directory import Directory
from node.store.database import Database
from node.store.nodes import KnownNode

OWN = KnownNode(
    identity="own",
    name="here",
    url="https://192.0.2.1:8642",
    address="192.0.2.1",
    is_self=True,
    added_at=0,
    seen_at=None,
    unreachable_since=None,
    last_error=None,
    busy_until=None,
    shortfall=None,
    attributes={},
    lanes=1,
)
OTHER = replace(
    OWN,
    identity="other",
    name="there",
    url="https://there.example:8642",
    address="192.0.2.2",
    attributes={"context:storage": "10.0.0.2"},
    is_self=False,
)


def _directory_of(*nodes: KnownNode) -> Directory:
    directory = Directory(cast(Database, None))  # filled, and never read
    directory.fill(nodes)
    return directory


def test_addresses_of_cards_and_apis_with_addresses_are_places() -> None:
    """Addresses of contexts are places, too; a URL with a name has none until a look-up."""
    places = KnownPlaces.of((OWN, OTHER))
    assert {str(each) for each in places.networks} == {
        "192.0.2.1/32",
        "192.0.2.2/32",
        "10.0.0.2/32",
    }
    assert places.apis == {(ipaddress.ip_address("192.0.2.1"), 8642)}
    assert places.cards == {"own": OWN, "other": OTHER}
    assert not places.on_loopback


def test_others_on_loopback_or_at_own_addresses_are_on_this_host() -> None:
    """Labs on one host measure the others there, and nothing else on it."""
    at_loopback = replace(OTHER, url="http://127.0.0.2:8642", address="127.0.0.2", attributes={})
    places = KnownPlaces.of((OWN, at_loopback))
    assert places.on_loopback
    assert list(map(str, places.on_host(frozenset()))) == ["127.0.0.2/32"]
    own = frozenset({ipaddress.ip_address("10.0.0.2")})
    assert list(map(str, KnownPlaces.of((OWN, OTHER)).on_host(own))) == ["10.0.0.2/32"]


def test_a_card_whose_url_is_none_has_no_api() -> None:
    """Nodes that fetch their work have no URL; a wrong one must not end the reading of others."""
    places = KnownPlaces.of((OWN, replace(OTHER, url=None), replace(OTHER, url="http://[::1")))
    assert places.apis == {(ipaddress.ip_address("192.0.2.1"), 8642)}


def test_the_known_nodes_are_the_same_object_until_one_of_them_changes() -> None:
    """Places are read again when a card changes, and only then."""
    directory = _directory_of(OWN, OTHER)
    first = directory.all
    directory.fill([replace(OWN), replace(OTHER)])
    assert directory.all is first
    directory.fill([OWN, replace(OTHER, address="192.0.2.3")])
    assert [each.address for each in directory.all] == ["192.0.2.1", "192.0.2.3"]
    assert directory.find("192.0.2.3") == directory.by_identity("other")
    assert directory.find("192.0.2.2") is None
