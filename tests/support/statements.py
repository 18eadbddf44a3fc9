"""The statements that a test sends to its databases, for counting."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest


def asked_of_database(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a growing list of the statements sent from now on."""
    asked: list[str] = []

    def watch(name: str) -> None:
        real = getattr(asyncpg.Connection, name)

        async def note(self: Any, query: str, *given: Any, **named: Any) -> Any:
            asked.append(query)
            return await real(self, query, *given, **named)

        monkeypatch.setattr(asyncpg.Connection, name, note)

    for name in ("fetch", "fetchrow", "fetchval", "execute"):
        watch(name)
    return asked
