"""The standing of a campaign where it contends: by level of its parents, and who had it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lead.policy.contested import Account, Contests
from lead.policy.share.weight_tree import Branch
from lead.policy.view import Exact
from node.model.spans import Span


@dataclass(frozen=True, slots=True)
class BranchFigures:
    """The seat-µs, or starts, that a campaign and those below it hold, want, and are due."""

    name: str
    weight: Exact
    held: int
    demand: int
    due: float


@dataclass(frozen=True, slots=True)
class LevelStanding:
    """A campaign or one above it, and those with which it divides."""

    own: BranchFigures
    others: Sequence[BranchFigures]


@dataclass(frozen=True, slots=True)
class Standing:
    """The standing of a campaign in some contested time; ``levels`` are from the root down.

    ``behind`` is by how much it holds less than it is due. From ``caught_up_at`` on it is within a
    run of its part of what all have had by then; None if that is not so by the end of the time.
    """

    span: Span
    levels: Sequence[LevelStanding]
    behind: float
    caught_up_at: int | None


def standings_of(contests: Contests, campaign: str) -> list[Standing]:
    """Return how a campaign stands, the soonest contested time first."""
    return [_standing(contests, account, campaign) for account in contests.accounts_of(campaign)]


def _standing(contests: Contests, account: Account, campaign: str) -> Standing:
    path = next(
        found for branches in account.tiers if (found := list(_levels_to(branches, campaign)))
    )
    levels = [
        LevelStanding(
            _figures(own, account),
            [
                _figures(it, account)
                for it in siblings
                if it is not own and any(account.demand.get(name) for name in it.campaigns())
            ],
        )
        for own, siblings in path
    ]
    behind = max(0.0, float(account.due[campaign]) - account.held.get(campaign, 0))
    return Standing(account.span, levels, behind, _caught_up_at(contests, account, campaign))


def _levels_to(
    branches: Sequence[Branch], campaign: str
) -> Iterator[tuple[Branch, Sequence[Branch]]]:
    """Yield the branches on the way to a campaign, each with all of its level."""
    for branch in branches:
        if campaign in branch.campaigns():
            yield branch, branches
            yield from _levels_to(branch.below, campaign)


def _figures(branch: Branch, account: Account) -> BranchFigures:
    names = list(branch.campaigns())

    def total(figures: Mapping[str, int]) -> int:
        return sum(figures.get(name, 0) for name in names)

    due = sum(float(account.due.get(name, 0)) for name in names)
    return BranchFigures(
        branch.name, branch.weight, total(account.held), total(account.demand), due
    )


def _caught_up_at(contests: Contests, account: Account, campaign: str) -> int | None:
    """Return from when on a campaign is within a run of its part of what all have had."""
    total = sum(account.held.values())
    part = float(account.due[campaign]) / total if total else 0.0
    since: int | None = account.span[0]
    had = of_all = 0
    for (_, end), whose, amount in contests.amounts_in(account.span):
        of_all += amount
        had += amount if whose == campaign else 0
        if part * of_all - had >= max(amount, 1):
            since = None
        elif since is None:
            since = end
    return since
