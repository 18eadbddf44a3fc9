"""The files and locks of followed meshes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from node.cli.follows import FollowedMesh, FollowOutcome, FollowStore, as_record
from node.model import times
from node.model.errors import Conflict, HostError, NotFound
from node.trust.keys import NodeKey

MESH = FollowedMesh("lab", "https://x/lab.json", named={"192.0.2.1": "a"})
NOW = times.parse_instant("2026-12-01T00:00:00Z")


def test_a_followed_mesh_is_kept_as_it_was(tmp_path: Path) -> None:
    """A mesh comes back from its file with the outcome of its last pass, until it is removed."""
    store = FollowStore(tmp_path)
    assert store.listed() == []
    store.keep(MESH)
    ended = store.end(MESH, FollowOutcome(NOW, "changed", "2 created", "d", ("x is missing",), 1))
    assert FollowStore(tmp_path).listed() == [ended]
    assert as_record(ended)["last"]["at"] == "2026-12-01T00:00:00Z"
    assert store.has("lab")
    store.remove("lab")
    with pytest.raises(NotFound, match="follows no mesh lab"):
        store.one("lab")


def test_the_meshes_are_of_the_node_of_the_directory(tmp_path: Path) -> None:
    """A state directory names its node by the key, if there is one."""
    assert FollowStore(tmp_path).owner() is None
    identity = NodeKey.load_or_create(tmp_path / "node.pem").identity
    assert FollowStore(tmp_path).owner() == identity


def test_only_one_is_at_a_mesh(tmp_path: Path) -> None:
    """A second follower of a mesh is refused with the number of the process; of another, not."""
    one, other = FollowStore(tmp_path), FollowStore(tmp_path)
    with one.locked("lab"):
        with (
            pytest.raises(Conflict, match=r"process \d+ is at work on mesh lab"),
            other.locked("lab"),
        ):
            pytest.fail("two are at it")
        with other.locked("other"):
            pass
    with other.locked("lab"):
        pass


def test_it_is_tried_again_soon_after_a_failure() -> None:
    """A mesh is due after its interval, and soon after a pass that changed nothing by necessity."""
    good = replace(MESH, last=FollowOutcome(NOW, "in step", ""))
    assert (MESH.due_at, good.due_at - NOW) == (0, times.HOUR)
    for word in ("away", "broken", "failed"):
        bad = replace(MESH, last=FollowOutcome(NOW, word, ""))
        assert bad.due_at - NOW == 5 * times.MINUTE


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    """A file that is no followed mesh is named, with what to do."""
    store = FollowStore(tmp_path)
    store.keep(MESH)
    path = store.folder / "lab.json"
    path.write_text('{"name": "lab"}')
    with pytest.raises(HostError, match=r"lab\.json is damaged"):
        store.listed()
