"""Directories of nodes: names, URLs and keys of many nodes in one file, signed by one of them.

The file is the document :class:`NodeDirectory` as JSON. It grants nothing: an owner introduces the
nodes in it to their own node, and each is then added as it would be alone.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from node.model.wire.fields import Document, Instant
from node.model.wire.nodes import Identity, NodeName, Url
from node.model.wire.participants import StatementText

MEDIA_TYPE: Final = "application/vnd.parley.node-directory+json"
VERSION: Final = 1
DIRECTORY_MAX = 200
"""Maximum number of nodes in a directory."""


class DirectoryEntry(Document):
    """One node of a directory."""

    name: NodeName
    url: Url | None = Field(description="Null if no other node can reach it and it fetches work.")
    identity: Identity


Entries = Annotated[tuple[DirectoryEntry, ...], Field(max_length=DIRECTORY_MAX)]


def _check_distinct(entries: tuple[DirectoryEntry, ...]) -> None:
    for what in ("name", "identity"):
        values = [getattr(entry, what) for entry in entries]
        for value in values:
            if values.count(value) > 1:
                msg = f"has two nodes with the {what} {value}"
                raise ValueError(msg)


class DirectoryMaker(Document):
    """The node that has signed a directory, and when."""

    at: Instant
    name: NodeName
    node: Identity


class DirectoryRequest(Document):
    """The nodes to sign a directory of; this node is added to them."""

    nodes: Entries | None = Field(
        None, description="Without it, all nodes that this node knows by their names."
    )

    @model_validator(mode="after")
    def _check_nodes_distinct(self) -> Self:
        _check_distinct(self.nodes or ())
        return self


class NodeDirectory(Document):
    """A directory of nodes, signed by the node that made it."""

    type: Literal["application/vnd.parley.node-directory+json"]
    version: Literal[1]
    about: str = Field(max_length=1000)
    made: DirectoryMaker
    nodes: Entries
    signature: StatementText = Field(
        description="A compact JWS (RFC 7515) with Ed25519 on the digests of the other members."
    )

    @model_validator(mode="after")
    def _check_nodes_distinct(self) -> Self:
        _check_distinct(self.nodes)
        return self


class IntroductionState(StrEnum):
    """The outcome of the introduction of a node."""

    ADDED = "added"
    CHANGED = "changed"
    """It was known with another URL or name."""
    KNOWN = "known"
    SELF = "self"
    """This node itself."""
    REFUSED = "refused"


class IntroducedNode(DirectoryEntry):
    """One node of a directory, and what its introduction came to, or with ``dry_run`` would."""

    state: IntroductionState
    reason: str | None = Field(
        None, description="Why it was refused, or what has changed: a sentence."
    )
    knows_this: bool | None = Field(
        None, description="Whether it knows this node, too; null while that is not known."
    )


class IntroductionReport(Document):
    """The outcome of the introduction of a directory, and who has signed it."""

    made: DirectoryMaker
    signer: Literal["self", "known", "unknown"] = Field(
        description="Whether the key that signed it is that of this node, of one that is known "
        "here, or of none of these."
    )
    signer_name: str | None = Field(description="The name of the node with this key here.")
    nodes: tuple[IntroducedNode, ...]
