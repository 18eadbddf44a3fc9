"""Health and readiness of a node, for those who watch it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from node.model.wire.fields import Document


class Health(Document):
    """The answer of a process that runs."""

    status: Literal["ok"] = "ok"


class Ready(Document):
    """The answer of a node that can work."""

    status: Literal["ready"] = "ready"
    warnings: tuple[str, ...] = Field((), description="What will keep it from working later.")
