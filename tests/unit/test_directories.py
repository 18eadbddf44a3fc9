"""Directories of nodes: what is changed in the file is found, and what it would mean is told."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError

from node.model.canonical import canonical
from node.model.errors import InvalidDocument
from node.model.wire.directories import DIRECTORY_MAX, DirectoryEntry, NodeDirectory
from node.model.wire.fields import FROM_OUTSIDE
from node.peers.directory_files import check_directory, compare
from node.trust.keys import NodeKey
from node.trust.statements import StatementKind, digests, sign_statement

A, B, C = (NodeKey.generate() for _ in range(3))
OTHER = NodeKey.generate().identity


class Known(NamedTuple):
    """A node that is known."""

    identity: str
    name: str
    url: str | None
    address: str = "192.0.2.1"
    attributes: dict[str, Any] = {}  # noqa: RUF012 - nothing changes it


KNOWN = (Known(A.identity, "a", "https://a:1"), Known(B.identity, "b", "https://b:1"))


def entry(name: str, identity: str, url: str | None = None) -> DirectoryEntry:
    """Return an entry of a directory."""
    return DirectoryEntry(name=name, url=url or f"https://{name}:1", identity=identity)


def signed(kind: StatementKind = StatementKind.DIRECTORY, key: NodeKey = A) -> dict[str, Any]:
    """Return a directory of two nodes as its file has it."""
    document = {
        "type": "application/vnd.parley.node-directory+json",
        "version": 1,
        "about": "…",
        "made": {"at": "2026-12-01T00:00:00Z", "name": "a", "node": A.identity},
        "nodes": [
            {"name": "a", "url": "https://a:1", "identity": A.identity},
            {"name": "b", "url": None, "identity": B.identity},
        ],
    }
    return document | {"signature": sign_statement(key, kind, {"sha256": digests(document)})}


def read(document: Any) -> NodeDirectory:
    """Return a directory as a node reads it."""
    return NodeDirectory.model_validate(document, context=FROM_OUTSIDE)


def pointers(document: Any) -> list[str]:
    """Return where a directory is not what was signed."""
    with pytest.raises(InvalidDocument) as caught:
        check_directory(read(document))
    return [fault.pointer for fault in caught.value.faults]


def test_what_was_signed_is_accepted() -> None:
    """The order and the spelling of the file do not matter."""
    document = signed()
    check_directory(read(document))
    check_directory(read(dict(reversed(document.items()))))
    check_directory(NodeDirectory.model_validate_json(canonical(document), context=FROM_OUTSIDE))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("nodes", 1, "name"), "c"),
        (("nodes", 1, "url"), "https://evil:1"),
        (("nodes", 1, "identity"), OTHER),
        (("made", "at"), "2027-12-01T00:00:00Z"),
        (("made", "name"), "c"),
        (("about",), "Trust me."),
    ],
    ids=["name", "url", "identity", "instant", "maker", "about"],
)
def test_whatever_is_changed_is_found(path: tuple[Any, ...], value: Any) -> None:
    """A change of any member is named by the member."""
    document: Any = signed()
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert pointers(document) == [f"/{path[0]}"]


def test_added_and_removed_nodes_are_found() -> None:
    """Nobody can add a node to a signed directory, or take one out."""
    more, fewer = signed(), signed()
    more["nodes"].append({"name": "c", "url": "https://c:1", "identity": C.identity})
    del fewer["nodes"][0]
    assert pointers(more) == pointers(fewer) == ["/nodes"]


def test_the_signature_is_that_of_its_maker() -> None:
    """A directory is signed by the key that it names, as a directory, and not damaged."""
    assert pointers(signed(key=B)) == ["/signature"]
    assert pointers(signed(StatementKind.BUNDLE)) == ["/signature"]
    whole = signed()["signature"]
    for damaged in ("", "x.y.z", whole[:-4], whole[:-1] + ("A" if whole[-1] != "A" else "Q")):
        assert pointers(signed() | {"signature": damaged}) == ["/signature"]


@pytest.mark.parametrize("member", ["name", "identity"])
def test_a_name_and_a_key_occur_once(member: str) -> None:
    """A directory with two nodes of one name or key is none."""
    document = signed()
    document["nodes"][1][member] = document["nodes"][0][member]
    with pytest.raises(ValidationError, match=f"two nodes with the {member}"):
        read(document)


def test_a_directory_has_an_end() -> None:
    """There is a most of nodes."""
    document = signed()
    document["nodes"] *= DIRECTORY_MAX
    with pytest.raises(ValidationError, match=f"at most {DIRECTORY_MAX}"):
        read(document)


@pytest.mark.parametrize(
    ("said", "state", "reason"),
    [
        (entry("a", A.identity, "https://elsewhere:1"), "self", None),
        (entry("b", B.identity), "known", None),
        (entry("c", C.identity), "added", None),
        (entry("b", B.identity, "https://b.example:1"), "changed", "its URL was https://b:1"),
        (entry("d", B.identity, "https://b:1"), "changed", "its name was b"),
        (entry("b", OTHER), "refused", f"known here with the key {B.identity}"),
        (entry("a", OTHER), "refused", "this node itself has this name"),
    ],
    ids=["self", "known", "new", "url", "name", "other-key", "own-name"],
)
def test_what_it_would_mean_is_told(said: DirectoryEntry, state: str, reason: str | None) -> None:
    """Each node is new, known, changed, this one, or refused, with a reason."""
    (told,) = compare([said], KNOWN, A.identity)
    assert told.state == state
    assert (told.reason is None) if reason is None else (reason in (told.reason or ""))


def test_a_node_that_fetches_its_work_names_itself() -> None:
    """A node that is known by its key alone is known, whatever the directory calls it."""
    known = [*KNOWN, Known(C.identity, "unseen-x", None)]
    (told,) = compare([DirectoryEntry(name="c", url=None, identity=C.identity)], known, A.identity)
    assert told.state == "known"
