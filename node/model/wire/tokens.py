"""The tokens of users, as their owner sees them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field, StringConstraints

from node.model import times
from node.model.principals import LABEL, Role
from node.model.wire.fields import Document, Duration, Instant

Label = Annotated[str, StringConstraints(pattern=f"^{LABEL.pattern}$")]
"""The name of the user of a token, such as ``alice`` or ``alice@example.org``."""

_LIFE_MAX = 3660 * times.DAY


class TokenRequest(Document):
    """A token to be made."""

    label: Label = Field(
        description="The user that it is for; tokens of one label belong to one user."
    )
    role: Role = Field(description="What it permits: see docs/concepts/trust.md.")
    expires_in: Annotated[Duration, Field(gt=0, le=_LIFE_MAX)] | None = Field(
        None, description="The time after which it is valid no longer; null: it does not expire."
    )


class Token(Document):
    """A token of a user, but for its secret."""

    id: UUID
    label: str
    role: Role
    created_at: Instant
    created_by: str = Field(description="The label of the token with which it was made.")
    expires_at: Instant | None
    used_at: Instant | None = Field(description="When it was used last, to the minute.")
    revoked_at: Instant | None


class NewToken(Token):
    """A token that was just made, with its secret, which is shown this once."""

    token: str


class Caller(Document):
    """The user who asks, and their role."""

    label: str | None = Field(description="Of their token; null for a program that needs none.")
    role: Role = Field(description="What they may do: see docs/trust.md.")
