"""The audit, as the owner of the node sees it."""

from __future__ import annotations

from pydantic import Field

from node.model.audit import AuditOutcome
from node.model.principals import PrincipalKind, Role
from node.model.wire.fields import Document, Instant


class AuditRecord(Document):
    """A row of the audit."""

    id: int
    at: Instant
    kind: PrincipalKind = Field(description="How the caller was known.")
    principal: str | None = Field(description="The label of the token, or the name of the node.")
    key: str | None = Field(description="The id of the token, or the key of the node.")
    role: Role | None = Field(description="The role of the token.")
    origin: str | None = Field(
        description="The address that the request came from; that of a proxy, if there is one."
    )
    verb: str = Field(
        description="The operationId of this document, or what the node did by itself."
    )
    thing: str | None = Field(description="The id or name of what it is about.")
    outcome: AuditOutcome
    status: int | None = Field(description="The status of the answer.")
    problem: str | None = Field(description="The last word of the type of the problem.")
    count: int = Field(
        description="The number of requests; more than one where those of a flood were left out."
    )
