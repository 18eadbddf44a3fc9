"""Keys of nodes: replaced by others, and revoked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from node.model.wire.fields import Document
from node.model.wire.nodes import Identity, NodeName
from node.model.wire.participants import StatementText

REVOCATIONS_MAX = 100
"""Maximum number in one message."""


class UntoldNode(Document):
    """A node that has not heard of something, and why."""

    name: NodeName
    reason: str


class Rekeying(Document):
    """The answer to a replaced key: the new one, and who follows it already."""

    identity: Identity = Field(description="What the node is called by; it stays.")
    key: Identity = Field(description="The public key with which the node signs from now on.")
    told: tuple[NodeName, ...] = Field(description="Nodes that have taken the key over.")
    untold: tuple[UntoldNode, ...] = Field(
        description="Nodes that have not; they learn the key from the next message, if they follow "
        "keys at all."
    )


class RevocationRequest(Document):
    """A wish to revoke a key of this node."""

    key: Identity | None = Field(
        None,
        description="The key of today, with which the node ends for good, or a replaced one; with "
        "prepare it may be left out, and is the one of today.",
    )
    prepare: bool = Field(
        default=False,
        strict=True,
        description="Only sign the statement, to be kept in a safe place; change nothing.",
    )

    @model_validator(mode="after")
    def _check_intent(self) -> RevocationRequest:
        if self.key is None and not self.prepare:
            raise ValueError("needs the key that ends (GET /v1/nodes/self has it), or prepare")
        return self


class Revocation(Document):
    """A revocation: a statement, or a node that the owner of this one believes no more."""

    statement: StatementText | None = Field(
        None, description="Signed by the key itself, or by one that followed it."
    )
    node: NodeName | None = Field(
        None,
        description="Another node that is known here, in place of a statement: all its keys count "
        "for nothing here any more. Others are not told, since they would not believe it.",
    )

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Revocation:
        if (self.statement is None) is (self.node is None):
            raise ValueError("needs a statement or a node, not both")
        return self


class RevokedKeys(Document):
    """Revocations that a node tells to others."""

    statements: Annotated[tuple[StatementText, ...], Field(max_length=REVOCATIONS_MAX)]


class RevocationReport(Document):
    """The answer to a revocation: what it ended here, and who knows it."""

    key: Identity
    statement: StatementText | Literal[""] = Field(
        "", description="Empty if the owner of this node has revoked another one by its name."
    )
    ended: Literal["nothing", "key", "node"] = Field(
        description="Nothing, because the key is not known here or was revoked before, or because "
        "the statement was only prepared; the key alone, because the node has another one by now; "
        "or the node, with all open tasks with it."
    )
    told: tuple[NodeName, ...] = ()
    untold: tuple[UntoldNode, ...] = Field(
        (), description="Nodes that have not heard; they are told as soon as they can be reached."
    )
