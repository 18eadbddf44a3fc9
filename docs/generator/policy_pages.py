"""Makes the pages of the policy sets, with a picture of what each does to the same three campaigns.

``python -m docs.generator.policy_pages`` writes them anew; a test says when they are old.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lead.pool.rehearsal.forecast import Rehearsal
from lead.simulation.pool_drawing import draw_pool
from lead.simulation.pool_file import PoolFile, placements_of, rehearsed
from lead.simulation.scenario import POOL, read, validated
from node.model import times
from node.model.policysets import ALIASES, DEFAULT, SETS, PolicyRecipe, options_of
from node.model.wire.policy_plans import CampaignForecast

DOCS = Path(__file__).parents[1]

WORDS = {
    "campaign-default": (
        "Each campaign gets its part by weight of what all of them want, and campaigns of one "
        "parent share that of the parent. What would start too late takes an earlier place of "
        "its own campaign. Urgent campaigns displace others on a tenth of the pool."
    ),
    "pscheduler": (
        "The run that is due first goes first; of those due at one time, the task that was "
        "added first. Weights mean nothing. A task of higher priority displaces lower ones "
        "where nothing is free."
    ),
    "shares": (
        "Whoever is furthest below its weight in the last 24 hours is served first, until it "
        "has its part; the rest is given in turn. With `serial=true` the campaigns of a "
        "higher level have all they want first."
    ),
    "in-order": (
        "The campaign that was made first has all it wants; what it leaves is for the next "
        "one. Here that is `students`."
    ),
    "promised": (
        "Each campaign has the seats that it was promised, at each instant, and lends out "
        "what it does not use, as far as it allows (`parley campaign edit ops --lend 50%`); it "
        "borrows as much as is free, or as `--borrow` says. Campaigns without a promise get "
        "nothing."
    ),
    "turns": (
        "Campaigns take turns by the number of runs that they start: each start costs a "
        "campaign its price, and the others gain. How long runs last does not count."
    ),
    "priority": (
        "What has waited longest goes first, or what counts most by weights of your own. With "
        "`fairshare=true`, campaigns below their part of the week gain points."
    ),
    "backfill": (
        "What has waited longest goes first. If it finds no time, a slot is kept for it, and "
        "only what ends before that slot goes first."
    ),
    "long-term": (
        "Campaigns take turns by what they had, of which half is forgotten within a day. A "
        "campaign of weight 0 has what is idle."
    ),
}
"""By set, what it does."""

BESIDE = {
    "campaign-default": "campaign-default together=none",
    "pscheduler": "pscheduler failures_max=1",
    "shares": "shares serial=true",
    "in-order": "in-order serial=true",
    "promised": "promised take_back=true",
    "turns": "turns laid=spread",
    "priority": "priority weights=usual fairshare=true",
    "backfill": "backfill depth=3",
    "long-term": "long-term deadlines=true",
}
"""By set, a recipe with an option, to show beside it."""


_SCENE = (
    "Four nodes, and three campaigns that want half as much again as there is: `students` (weight",
    "1, the oldest) short runs, `ops` (weight 3, a higher level) longer ones, and `survey` (weight",
    "1) one an hour on two nodes at once. `parley simulate pool --show` prints the file.",
)


def pages() -> Iterator[tuple[Path, str]]:
    """Yield the files of all sets, each with its text."""
    file = validated(PoolFile, read(POOL))
    for name, words in WORDS.items():
        played = [(recipe, rehearsed(file, recipe)) for recipe in (name, BESIDE[name])]
        drawn = draw_pool(file, [(recipe, placements_of(it)) for recipe, it in played[:1]])
        yield DOCS / "static" / "policies" / f"{name}.svg", drawn
        yield DOCS / "concepts" / "policies" / f"{name}.md", _page(name, words, played)


def _page(name: str, words: str, played: list[tuple[str, Rehearsal]]) -> str:
    recommended = " This is the recommended set." if name == DEFAULT else ""
    former = [
        f"| `{alias}` | {PolicyRecipe(name, recipe.options).words} |"
        for alias, recipe in ALIASES.items()
        if recipe.set == name
    ]
    options = [f"| `{option}` | {text} |" for option, text in options_of(name).items()]
    lines = [
        f"# {name}",
        "",
        f"Good for {SETS[name].good_for}.{recommended}",
        "",
        words,
        "",
        f"![Four nodes for four hours under {name}](../../static/policies/{name}.svg)",
        "",
        *_SCENE,
        "",
        "```sh",
        f"parley simulate pool --compare '{played[0][0]}' '{played[1][0]}'",
        "```",
        "",
        "| policies | campaign | runs | share | waits | longest | missed |",
        "|---|---|---|---|---|---|---|",
        *(row for recipe, it in played for row in _rows(recipe, it)),
        "",
        "| option | what it changes |",
        "|---|---|",
        *options,
        "",
        *(["| former name | now |", "|---|---|", *former, ""] if former else []),
        "[Which set?](../choosing-policies.md) has the others.",
    ]
    return "\n".join(lines) + "\n"


def _rows(recipe: str, played: Rehearsal) -> Iterator[str]:
    for it in played.forecast(played.looked_until).campaigns:
        yield f"| `{recipe}` | {it.campaign} | {' | '.join(_cells(it))} |"


def _cells(it: CampaignForecast) -> list[str]:
    waits = [times.duration_text(each) for each in (it.wait_median, it.wait_longest)]
    return [str(it.runs), f"{it.share:.0%}", *waits, str(it.missed)]


def main() -> None:
    """Write all files."""
    for path, text in pages():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
