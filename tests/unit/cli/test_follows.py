"""The files and locks of followed meshes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from node.cli.meshfollow import FollowedMesh, Follower, FollowOutcome, FollowStore, as_record
from node.cli.session import Session
from node.model import times
from node.model.errors import Conflict, HostError, NotFound
from node.trust.keys import NodeKey

MESH = FollowedMesh("lab", "https://x/lab.json", named={"192.0.2.1": "a"}, archives=("d",))
NOW = times.parse_instant("2026-12-01T00:00:00Z")


def test_a_followed_mesh_is_kept_as_it_was(tmp_path: Path) -> None:
    """A mesh comes back from its file with the outcome of its last pass, until it is removed."""
    store = FollowStore(tmp_path)
    assert store.meshes() == []
    store.store(MESH)
    ended = store.store_outcome(
        MESH, FollowOutcome(NOW, "changed", "2 created", "d", ("x is missing",), 1)
    )
    assert FollowStore(tmp_path).meshes() == [ended]
    assert as_record(ended)["last"]["at"] == "2026-12-01T00:00:00Z"
    assert store.has_mesh("lab")
    store.remove("lab")
    with pytest.raises(NotFound, match="follows no mesh lab"):
        store.mesh("lab")


def test_the_meshes_are_of_the_node_of_the_directory(tmp_path: Path) -> None:
    """A state directory names its node by the key, if there is one."""
    assert FollowStore(tmp_path).owner() is None
    identity = NodeKey.load_or_create(tmp_path / "node.pem").identity
    assert FollowStore(tmp_path).owner() == identity
    FollowStore(tmp_path).keep_owner(identity)
    (tmp_path / "node.pem").unlink()  # as for the service, which may not read it
    assert FollowStore(tmp_path).owner() == identity


async def test_another_node_is_refused_and_does_not_become_the_owner(tmp_path: Path) -> None:
    """A command that is typed for another node is refused, and the right one still is the owner."""
    identity = NodeKey.load_or_create(tmp_path / "node.pem").identity
    store = FollowStore(tmp_path)
    with pytest.raises(Conflict, match="which is not b"):
        await Follower(_session("b", "ed25519:b"), store).require_own_node()
    assert store.owner() == identity
    await Follower(_session("a", identity), store).require_own_node()
    (tmp_path / "node.pem").unlink()
    assert store.owner() == identity


def _session(name: str, identity: str) -> Session:
    """Return a session with a node of this name and key."""

    async def own_card() -> SimpleNamespace:
        return SimpleNamespace(name=name, identity=identity)

    client = SimpleNamespace(own_card=own_card)
    return cast(Session, SimpleNamespace(client=client))


def test_only_one_is_at_a_mesh(tmp_path: Path) -> None:
    """A second follower of a mesh is refused with the number of the process; of another, not."""
    one, other = FollowStore(tmp_path), FollowStore(tmp_path)
    with one.lock_of_mesh("lab"):
        with (
            pytest.raises(Conflict, match=r"process \d+ is at work on mesh lab"),
            other.lock_of_mesh("lab"),
        ):
            pytest.fail("two are at it")
        with other.lock_of_mesh("other"):
            pass
    with other.lock_of_mesh("lab"):
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
    store.store(MESH)
    path = store.folder / "lab.json"
    path.write_text('{"name": "lab"}')
    with pytest.raises(HostError, match=r"lab\.json is damaged"):
        store.meshes()
