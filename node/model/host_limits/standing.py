"""The standing of tasks with the limits of this host, as it is stored with them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from node.model.host_limits.caps import CapAccount


@dataclass(frozen=True)
class LimitStanding:
    """The rule that admits a task, or why it is refused by now.

    Both are None for a task that this node leads for a user without limits. ``run_bytes`` is what a
    run is expected to move here, None if that is unknown. ``caps`` are the accounts of its targets.
    ``user`` is whose task it is, if this node leads it.
    """

    rule: str | None = None
    refusal: str | None = None
    run_bytes: int | None = None
    caps: tuple[CapAccount, ...] = ()
    user: str | None = None

    @property
    def binds_user(self) -> bool:
        """Return whether it is the task of a user whom a limit binds."""
        return self.user is not None and (self.rule is not None or self.refusal is not None)

    @classmethod
    def from_columns(
        cls,
        rule: str | None,
        refusal: str | None,
        run_bytes: int | None,
        caps: list[list[Any]],
        user: str | None = None,
    ) -> Self:
        """Return the standing that these columns of the table of tasks hold."""
        accounts = tuple(CapAccount(*each) for each in caps)
        return cls(rule, refusal, run_bytes, accounts, user)
