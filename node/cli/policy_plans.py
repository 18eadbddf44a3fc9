"""Tables of what other policies would do to a pool: before and after, campaign by campaign."""

from __future__ import annotations

from node.cli.output import Column, Record, RecordLayout, pairs_text, printable_text, titled_lines
from node.model import times
from node.model.policysets import PolicyRecipe

POLICY_PLAN = RecordLayout(
    "pool,since,until,booked,before.policy.set,after.policy.set",
    Column("pool", lambda plan: plan["pool"]),
)

_FIGURES = ("runs", "share", "waits", "longest", "displaced", "missed")
_HEAD = ["campaign", *(cell for figure in _FIGURES for cell in (figure, ""))]
_NOTHING: Record = {
    "runs": 0,
    "share": 0.0,
    "wait_median": "PT0S",
    "wait_longest": "PT0S",
    "displaced": 0,
    "missed": 0,
}


def policy_plan_view(plan: Record) -> str:
    """Describe a plan of other policies for a person."""
    before, after = plan["before"], plan["after"]
    lines = [
        pairs_text(
            [
                ("pool", plan["pool"]),
                ("from", plan["since"]),
                ("until", plan["until"]),
                ("before", recipe_text(before)),
                ("after", recipe_text(after)),
                ("booked already", f"{plan['booked']:,} runs"),
                *(("note", printable_text(note)) for note in [*plan["notes"], *_cut(plan)]),
            ]
        ),
        "",
        *titled_lines("By campaign, before and after", [_HEAD, *_rows(before, after)]),
    ]
    for title, key in (("Would give way", "displaced"), ("Would not start in time", "missed")):
        for forecast in (before, after):
            if forecast[key]:
                rows = [[it["campaign"], it["slot"], it["task"] or ""] for it in forecast[key]]
                lines += ["", *titled_lines(f"{title}: {recipe_text(forecast)}", rows)]
    return "\n".join(lines)


def recipe_text(forecast: Record) -> str:
    """Return the policies of a forecast in words."""
    policy = forecast["policy"]
    return PolicyRecipe(policy["set"], policy["options"]).words


def _cut(plan: Record) -> list[str]:
    until = plan["after"]["looked_until"]
    if until == plan["until"]:
        return []
    return [f"there is too much to plan at once; figures are until {until}"]


def _rows(before: Record, after: Record) -> list[list[str]]:
    sides = [{it["campaign"]: it for it in each["campaigns"]} for each in (before, after)]
    names = sorted({*sides[0], *sides[1]})
    return [_row(name, *(side.get(name, _NOTHING) for side in sides)) for name in names]


def _row(name: str, before: Record, after: Record) -> list[str]:
    cells = [name]
    for key, text in (
        ("runs", _number),
        ("share", lambda it: f"{it:.0%}"),
        ("wait_median", _wait),
        ("wait_longest", _wait),
        ("displaced", _number),
        ("missed", _number),
    ):
        old, new = text(before[key]), text(after[key])
        cells += [old, "" if old == new else f"→ {new}"]
    return cells


def _number(value: int) -> str:
    return f"{value:,}"


def _wait(value: str) -> str:
    return times.duration_text(value)
