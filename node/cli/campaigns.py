"""``parley campaign``: campaigns, their shares of the nodes, and what they have used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

import click

from node.cli.documents import document_from_file
from node.cli.groups import command_group
from node.cli.listing import limit_option, print_documents, print_whole
from node.cli.options import clear_option, given_values, options, require_change
from node.cli.output import Column, Record, RecordLayout, pairs_text, percent, printable_text
from node.cli.session import ReadingSession, Session, asks_node, reads_node
from node.cli.times import DURATION, api_instant, local_time_text
from node.model import times
from node.model.byte_quotas import BYTES, bytes_text, parse_byte_quota
from node.model.moments import Moment
from node.model.times import duration_text

CLEARABLE = (
    "parent", "weight", "timed-weights", "leads", "level", "priority", "preemptor", "preemptee",
    "seats-max", "target", "fairshare", "limits", "quotas", "queue", "budget", "owner", "contact",
    "description",
)  # fmt: skip
"""The fields that ``--clear`` resets to their defaults."""

BOUNDS = ("borrow", "lend")
"""Members of the target, which ``--clear`` resets, too."""

_TIMED_WORDS = (7, 8)
"""Numbers of words of ``--weight-at``, without and with a zone."""

_KINDS = {"+": "floor", "-": "ceiling"}
_AIMED = {"target": ", to be met", "floor": " at least", "ceiling": " at most"}


def _promised_share(campaign: Record) -> str:
    if campaign["level"] == "urgent":
        return "first"
    if campaign["level"] == 0:
        return "suspended"
    promised = percent(campaign["used"]["promised"])
    target = campaign["target"]
    if target is None:
        return promised
    sure = "" if campaign["warnings"] else " for sure"
    return f"{promised}, {_target_text(campaign)}{sure}"


def _target_text(campaign: Record) -> str:
    target = campaign["target"]
    if target is None:
        return ""
    promised = f"{target['seats']} seats" if target["seats"] else percent(target["share"])
    borrows = "" if target["borrow"] is None else f", borrows {target['borrow']}"
    lends = "" if target["lend"] is None else f", lends {percent(target['lend'])} of it"
    return f"{promised}{borrows}{lends}"


def _budget_text(budget: Record | None) -> str:
    if budget is None:
        return ""
    return f"{budget['seat_hours']:g} seat-hours until {local_time_text(budget['until'])}"


def _waiting_text(campaign: Record) -> str:
    waiting = campaign["waiting"]
    counts = ", ".join(
        f"{waiting[word]} {word if waiting[word] > 1 else word.removesuffix('s')}"
        for word in ("runs", "seats")
        if waiting[word]
    )
    return f"{counts}: {waiting['reason']}" if counts else ""


CAMPAIGN = RecordLayout(
    "name,parent,weight,level,state,used.by_weight,used.promised,used.delivered,used.booked,"
    "used.delivered_seat_seconds,used.booked_seat_seconds,used.delivered_bytes,used.booked_bytes,"
    "waiting.runs,waiting.seats,waiting.reason,owner,contact,revision",
    Column("campaign", lambda campaign: campaign["name"], whole=True),
    Column("under", lambda campaign: campaign["parent"] or ""),
    Column("weight", lambda campaign: f"{campaign['weight']:g}", whole=True),
    Column("level", lambda campaign: str(campaign["level"]), whole=True),
    Column("by weight", lambda campaign: percent(campaign["used"]["by_weight"]), whole=True),
    Column("promised now", _promised_share),
    Column("had", lambda campaign: percent(campaign["used"]["delivered"]), whole=True),
    Column("booked", lambda campaign: percent(campaign["used"]["booked"]), whole=True),
    Column("waits", _waiting_text),
    empty="No campaigns. Add one: parley campaign add NAME",
)

HOUR = RecordLayout(
    "starts_at,campaign,seat_seconds,share,bytes,nodes",
    Column("hour", lambda hour: local_time_text(hour["starts_at"]), whole=True),
    Column("campaign", lambda hour: hour["campaign"], whole=True),
    Column("seat-seconds", lambda hour: f"{hour['seat_seconds']:.1f}", whole=True),
    Column("share", lambda hour: percent(hour["share"]), whole=True),
    Column("moved", lambda hour: bytes_text(hour["bytes"]), whole=True),
    Column("nodes", lambda hour: str(hour["nodes"])),
    empty="Nothing was charged in these hours.",
    key="campaign",
)


def _others_text(contested: Record) -> str:
    """Return who else divides, with what each had and was due."""
    return ", ".join(
        f"{it['campaign']} {it['had']:g} of {it['due']:g}" for it in contested["others"]
    )


CONTESTED = RecordLayout(
    "pool,starts_at,ends_at,depth,campaign,weight,unit,had,due,wanted,behind,caught_up_at",
    Column("pool", lambda it: it["pool"], whole=True),
    Column("from", lambda it: local_time_text(it["starts_at"]), whole=True),
    Column("until", lambda it: local_time_text(it["ends_at"]), whole=True),
    Column("campaign", lambda it: f"{'  ' * it['depth']}{it['campaign']}", whole=True),
    Column("weight", lambda it: f"{it['weight']:g}", whole=True),
    Column("had", lambda it: f"{it['had']:g}", whole=True),
    Column("due", lambda it: f"{it['due']:g} {it['unit']}", whole=True),
    Column("wants", lambda it: f"{it['wanted']:g}", whole=True),
    Column(
        "caught up",
        lambda it: local_time_text(it["caught_up_at"]) if it["caught_up_at"] else "not by then",
        whole=True,
    ),
    Column("others: had of due", _others_text),
    empty="Nobody else wants the time that it wants.",
    key="campaign",
)


_document_options = options("""
    --parent TEXT               Take its share out of this campaign's share.
    --weight NUMBER             Its share is proportional to this.
    --weight-at TEXT... as timed_weights  Another weight at times of day, in whole hours:
                                '1 0 20 * * * 10h Europe/Berlin' is 1 from 20:00 to 6:00. Of
                                several the first that applies counts; repeat for more, in the
                                place of all that it has.
    --lead NODE... as leads     Another lead whose campaign of this name counts as one with it, once
                                each names the other: budgets, quotas of bytes and shares count what
                                all have used. Repeat for more, in the place of all that it has.
    --level 0-9|urgent          Higher levels first; 0 suspends it: nothing new is booked for it,
                                booked runs take place.
    --priority INTEGER          Added to the priority of its tasks.
    --preemptor/--no-preemptor  May displace preemptees.
    --preemptee/--no-preemptee  May be displaced by them.
    --seats-max 1..             Maximum seats held at once.
    --target SEATS|PERCENT%     A promise: 20, or 30%.
    --borrow 0..                Maximum seats held beyond the promise while others do not want them.
    --lend PERCENT%             Maximum part of the promise that others may hold while it does not
                                want it: 50%.
    --budget SEAT-HOURS         What it and those below it may have until --budget-until: 200.
    --budget-until COMING       When the budget ends: 2026-12-31, 30d.
    --fairshare PERCENT%[+-]    Target part of all use: 25%; 25%+ is a floor, 25%- a ceiling.
    --limit WHAT=SOFT,HARD... as limits  Maximum at any instant: runs=10,50 allows 10 concurrent
                                runs while others want the pool, and 50 in any case; one number is
                                both. Also nodes, seats, seat_seconds, seconds (their remaining
                                time), due_runs (considered at once) and others; repeat for more.
    --quota WHAT=MOST... as quotas  Maximum of a counted resource at once, such as mbps=1000; or of
                                what it and those below it move within a period of whole hours:
                                bytes=50G/P1D is 50 GB per day, on all nodes together; repeat for
                                more.
    --owner TEXT                Who owns it.
    --contact TEXT              How to reach the owner.
    --description TEXT          What it is for.
    --file FILE|-               A document; options override it.
""")


def document_of(given: dict[str, Any], now: int) -> dict[str, Any]:
    """Return the campaign that options and file describe, at ``now``; options override the file."""
    document = document_from_file(given["file"]) if given["file"] else {}
    plain = ("parent", "priority", "preemptor", "preemptee", "seats_max", "owner", "contact")
    document |= given_values(given, *plain, "description")
    document |= {name: _READ[name](text) for name, text in given_values(given, *_READ).items()}
    for name, members in (("target", _bounds(given)), ("budget", _budget(given, now))):
        if members:
            document[name] = {**(document.get(name) or {}), **members}
    if given["timed_weights"]:
        document["timed_weights"] = [_timed_weight(text) for text in given["timed_weights"]]
    if given["leads"]:
        document["leads"] = list(given["leads"])
    if given["limits"]:
        document.setdefault("limits", {}).update(
            _unique_values(map(_limit, given["limits"]), "--limit")
        )
    if given["quotas"]:
        document.setdefault("quotas", {}).update(
            _unique_values(map(_quota, given["quotas"]), "--quota")
        )
    return document


def _unique_values(pairs: Iterable[tuple[str, Any]], option: str) -> dict[str, Any]:
    """Return the values by name.

    :raises click.BadParameter: one name has two different values.
    """
    values: dict[str, Any] = {}
    for name, value in pairs:
        if values.setdefault(name, value) != value:
            msg = f"gives two values for {name}; give it once"
            raise click.BadParameter(msg, param_hint=option)
    return values


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number", param_hint=option) from None


def _timed_weight(text: str) -> dict[str, Any]:
    """Read ``1 0 20 * * * 10h Europe/Berlin``: a weight, five cron fields, how long, and a zone."""
    words = text.split()
    if len(words) not in _TIMED_WORDS:
        msg = f"{text!r} is not a weight, five cron fields, how long, and perhaps a zone"
        raise click.BadParameter(f"{msg}: 1 0 20 * * * 10h Europe/Berlin", param_hint="--weight-at")
    timed = {
        "weight": _number(words[0], "--weight-at"),
        "cron": " ".join(words[1:6]),
        "duration": times.format_duration(DURATION.convert(words[6], None, None)),
    }
    return timed | ({"timezone": words[7]} if words[7:] else {})


def _whole_number(text: str, option: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is not a whole number", param_hint=option)
    return int(text)


def _fraction(text: str, option: str) -> float:
    return round(_number(text.removesuffix("%"), option) / 100, 6)


def _target(text: str) -> dict[str, Any]:
    if text.endswith("%"):
        return {"share": _fraction(text, "--target")}
    return {"seats": _whole_number(text, "--target")}


def _bounds(given: dict[str, Any]) -> dict[str, Any]:
    lend = {} if given["lend"] is None else {"lend": _fraction(given["lend"], "--lend")}
    return given_values(given, "borrow") | lend


def _budget(given: dict[str, Any], now: int) -> dict[str, Any]:
    hours, until = given["budget"], api_instant(given["budget_until"], now)
    amount = {} if hours is None else {"seat_hours": _number(hours, "--budget")}
    return amount | ({} if until is None else {"until": until})


def _fairshare(text: str) -> dict[str, Any]:
    kind = _KINDS.get(text[-1:], "target")
    return {"part": _fraction(text.rstrip("+-"), "--fairshare"), "kind": kind}


def _limit(text: str) -> tuple[str, dict[str, Any]]:
    name, equals, amounts = text.partition("=")
    soft, comma, hard = amounts.partition(",")
    if not equals or not amounts:
        msg = f"{text!r} is not WHAT=SOFT,HARD; one number is both"
        raise click.BadParameter(msg, param_hint="--limit")
    bounds = _whole_number(soft, "--limit"), _whole_number(hard if comma else soft, "--limit")
    return name, {"soft": bounds[0], "hard": bounds[1]}


def _quota(text: str) -> tuple[str, int | str | None]:
    name, equals, amount = text.partition("=")
    if not equals or not amount:
        raise click.BadParameter(f"{text!r} is not WHAT=MOST", param_hint="--quota")
    return name, amount if name == BYTES else _whole_number(amount, "--quota")


_READ: dict[str, Callable[[str], Any]] = {
    "weight": lambda text: _number(text, "--weight"),
    "level": lambda text: int(text) if text.isdecimal() else text,
    "target": _target,
    "fairshare": _fairshare,
}
"""Parsers of the options that are written differently from the document."""


def _timed_weight_text(timed: Record) -> str:
    zone = timed["timezone"] or "UTC"
    return f"{timed['weight']:g} at {timed['cron']} ({zone}) for {duration_text(timed['duration'])}"


def _shared_text(shared: Record) -> str:
    told = shared["told_at"]
    last = f"told its use at {local_time_text(told)}" if told else "has told nothing yet"
    return printable_text(": ".join(filter(None, (f"{shared['lead']}, {last}", shared["reason"]))))


def campaign_view(campaign: Record) -> str:
    """Return name and value of each member of a campaign, one on a line."""
    used, fairshare = campaign["used"], campaign["fairshare"]
    tasks = ", ".join(f"{count} {state}" for state, count in campaign["tasks"].items())
    return pairs_text(
        (
            ("campaign", campaign["name"]),
            ("state", campaign["state"]),
            ("under", campaign["parent"]),
            ("weight", f"{campaign['weight']:g}"),
            ("at times", "; ".join(map(_timed_weight_text, campaign["timed_weights"]))),
            ("level", str(campaign["level"])),
            *(("shared with", _shared_text(each)) for each in campaign["shared"]),
            ("priority", campaign["priority"] or None),
            ("by weight", percent(used["by_weight"])),
            ("promised now", _promised_share(campaign)),
            ("had in 24 h", _used_text(used, "delivered")),
            ("booked", _used_text(used, "booked")),
            ("waits", _waiting_text(campaign)),
            ("tasks", tasks),
            ("target", _target_text(campaign)),
            ("fairshare", fairshare and f"{percent(fairshare['part'])}{_AIMED[fairshare['kind']]}"),
            ("most seats", campaign["seats_max"]),
            ("limits", "; ".join(map(_limit_text, campaign["limits"].items()))),
            ("quotas", ", ".join(map(_quota_text, campaign["quotas"].items()))),
            ("budget", _budget_text(campaign["budget"])),
            ("preemption", " ".join(w for w in ("preemptor", "preemptee") if campaign[w])),
            ("owner", campaign["owner"]),
            ("contact", campaign["contact"]),
            ("description", campaign["description"]),
            ("revision", campaign["revision"]),
            *(("warning", printable_text(warning)) for warning in campaign["warnings"]),
        )
    )


campaign_group = command_group("campaign")


@campaign_group.command("add")
@click.argument("name", required=False)
@_document_options
@asks_node
async def add(session: Session, /, name: str | None, **given: Any) -> None:
    """Add a campaign: a purpose of tasks, and its share of the nodes.

    \b
      parley campaign add ops --weight 3 --level 7 --owner 'the lab'
      parley campaign add ops-lab --parent ops --limit runs=10,50 --quota mbps=1000
      parley campaign add ops-bulk --parent ops --quota bytes=50G/P1D
      parley campaign add outage --level urgent
    """  # noqa: D301 - click's mark for lines to keep
    document = document_of(given, session.clock.now())
    if name is not None:
        document["name"] = name
    if "name" not in document:
        raise click.UsageError("give the campaign a name: parley campaign add NAME")
    session.output.print_one(await session.client.add_campaign(document), CAMPAIGN, campaign_view)


campaign_group.add_list(
    "/campaigns",
    CAMPAIGN,
    """List campaigns: shares promised, had in the last 24 hours, and booked; who waits and why.

    'By weight' is the share if all campaigns had tasks. 'Promised now' is divided among those that
    have tasks or were charged lately, so it is 0 for the others. The share of a campaign includes
    those below it, which divide it: a parent and its only child have the same.
    """,
    warnings=True,
)
campaign_group.add_show("/campaigns", CAMPAIGN, campaign_view, "Show everything about a campaign.")


@campaign_group.command("edit")
@click.argument("name")
@_document_options
@options("--state [active|closed]  closed: no new tasks.")
@clear_option((*CLEARABLE, *BOUNDS))
@asks_node
async def edit(
    session: Session, /, name: str, state: str | None, clear: tuple[str, ...], **given: Any
) -> None:
    """Change a campaign; runs that are booked already stay booked.

    \b
      parley campaign edit ops --weight 2.5 --clear seats-max
      parley campaign edit ops --state closed
    """  # noqa: D301 - click's mark for lines to keep
    patch = document_of(given, session.clock.now())
    if state is not None:
        patch["state"] = state
    for field in clear:
        if field in BOUNDS:
            patch["target"] = {**(patch.get("target") or {}), field: None}
        else:
            patch[field.replace("-", "_")] = None
    require_change(patch, "campaign", "--weight 2")
    session.output.print_one(
        await session.client.edit_campaign(name, patch), CAMPAIGN, campaign_view
    )


@campaign_group.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@asks_node
async def remove(session: Session, names: tuple[str, ...]) -> None:
    """Remove campaigns that were never used, in this order; used ones can only be closed."""
    for name in names:
        await session.client.remove_campaign(name)
        session.progress.note(f"{name} was removed.")


@campaign_group.command("usage")
@click.argument("name", required=False)
@options("--since TIME  From this hour on [24 hours ago].")
@options("--until TIME  Before this hour [in 24 hours].")
@limit_option
@reads_node
async def usage(
    session: ReadingSession,
    name: str | None,
    since: Moment | None,
    until: Moment | None,
    limit: int,
) -> None:
    """Show what a campaign, or each campaign, was charged and has booked, hour by hour.

    3600 seat-seconds are one exclusive run on one node for a whole hour. Runs of the class
    background (rtt, trace, dns and the like) are charged no seats, unless PARLEY_WEIGHT_BACKGROUND
    is set. What runs send and receive counts on each node, in the hour in which they start: as
    expected, and then as measured where the test measures it.
    """
    now = session.clock.now()
    query = {"since": api_instant(since, now), "until": api_instant(until, now)}
    path = "/usage" if name is None else f"/campaigns/{quote(name, safe='')}/usage"
    await print_documents(session, HOUR, path, query, limit)


@campaign_group.command("why")
@click.argument("name")
@reads_node
async def why(session: ReadingSession, name: str) -> None:
    """Show where others want the same time, what it had and was due, and who had it.

    A line for each level of its parents: at each, it divides with the others. From "caught up" on
    it is within a run of its part of what all have had by then, as seats are given now.
    """
    await print_whole(session, CONTESTED, f"/campaigns/{quote(name, safe='')}/why")


def _used_text(used: Record, when: str) -> str:
    share, moved = used[when], used[f"{when}_bytes"]
    seats = (
        ""
        if share is None
        else f"{percent(share)}, {used[f'{when}_seat_seconds']:.1f} seat-seconds"
    )
    return ", ".join(filter(None, (seats, bytes_text(moved) if moved else ""))) or "nothing"


def _quota_text(item: tuple[str, Any]) -> str:
    what, most = item
    return parse_byte_quota(most).words if what == BYTES else f"{what} {most}"


def _limit_text(item: tuple[str, Record]) -> str:
    name, bounds = item
    amounts = [f"{kind} {bounds[kind]}" for kind in ("soft", "hard") if bounds[kind] is not None]
    return printable_text(f"{name} {', '.join(amounts)}")
