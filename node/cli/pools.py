"""``parley pool``: named sets of nodes, and the policies by which campaigns share them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import click

from node.cli.groups import command_group
from node.cli.listing import expected_members
from node.cli.options import given_values, options, require_change
from node.cli.output import (
    Column,
    Record,
    RecordLayout,
    aligned_text,
    cell_text,
    pairs_text,
    printable_text,
    readable_text,
)
from node.cli.policy_plans import POLICY_PLAN, policy_plan_view
from node.cli.session import ReadingSession, Session, asks_node, reads_node
from node.cli.values import MATCH_HELP, json_of, predicate
from node.model import times
from node.model.policysets import ALIASES, AXES, PolicyRecipe, expanded, parsed
from node.model.similar import suggestion


def _match(pool: Record) -> str:
    from node.model.predicates import parse

    return printable_text(parse(pool["match"]).in_words())


def _set_name(each: Record) -> str:
    return f"{each['name']} (recommended)" if each["recommended"] else str(each["name"])


def _policy(pool: Record) -> str:
    policy = pool["policy"]
    recipe = PolicyRecipe(policy["set"], policy["options"]).words
    overrides = [f"{axis}: {_override(values)}" for axis, values in policy["overrides"].items()]
    return f"{recipe} ({'; '.join(overrides)})" if overrides else recipe


def _options_text(policy_set: Record) -> str:
    return ", ".join(policy_set["options"])


def _override(values: Record) -> str:
    parameters = [f"{name} {cell_text(value)}" for name, value in values.items() if name != "rule"]
    return ", ".join([*([str(values["rule"])] if "rule" in values else []), *parameters])


POOL = RecordLayout(
    "name,match,nodes,policy.set,choice,lead,revision",
    Column("pool", lambda pool: pool["name"], whole=True),
    Column("nodes", lambda pool: str(len(pool["nodes"])), whole=True),
    Column("match", _match),
    Column("policy", _policy),
    Column("choice", lambda pool: pool["choice"], whole=True),
    empty="No pools. Add one: parley pool add NAME --match country=DE",
)

POLICY_SET = RecordLayout(
    "name,good_for,recommended,options,aliases",
    Column("set", _set_name, whole=True),
    Column("good for", lambda each: each["good_for"]),
    Column("options", _options_text),
    empty="This node has no policy sets.",
)

_MATCH = click.option("--match", "match", multiple=True, metavar="CONDITION", help=MATCH_HELP)
_SET = options("""
    --set SET as policy_set  Policies, with options: 'shares serial=true'; see: parley pool sets.
""")
_OVERRIDE = options("""
    --override AXIS=RULE|AXIS.PARAMETER=VALUE... as overrides  Override one rule: order=next-run,
                                share.window=30m; repeat for more.
""")


_settings_options = options("""
    --choice [sticky|rotating]  Which nodes measure a target again: the same, or each in turn.
                                rotating makes a term, and a task for each seat, for every run.
    --term DURATION             How long the chosen nodes keep their seats, with a task for each
                                seat [6h]; in rotating pools it is one run.
    --patience DURATION         A node that has not answered for this long loses its seats [10m].
    --description TEXT          What it is for.
""")


def pool_view(pool: Record) -> str:
    """Describe a pool for a person."""
    head = pairs_text(
        (
            ("pool", pool["name"]),
            ("match", _match(pool)),
            ("policy", _policy(pool)),
            ("choice", pool["choice"]),
            ("term", pool["term"] if pool["choice"] == "sticky" else "one run"),
            ("patience", pool["patience"]),
            ("planned by", pool["lead"]),
            ("description", pool["description"]),
            ("revision", pool["revision"]),
            ("nodes", f"{len(pool['nodes'])}: {', '.join(pool['nodes'])}"),
            *(("warning", printable_text(warning)) for warning in pool["warnings"]),
        )
    )
    rows = [(other["node"], readable_text(other["reason"])) for other in pool["others"]]
    return f"{head}\nnot in it:\n{aligned_text(rows, '  ')}" if rows else head


def policy_set_view(policy_set: Record) -> str:
    """Describe a policy set for a person."""
    head = pairs_text(
        (
            ("set", _set_name(policy_set)),
            ("good for", policy_set["good_for"]),
        )
    )
    options = aligned_text(list(policy_set["options"].items()), "  ")
    aliases = [
        (it["name"], PolicyRecipe(policy_set["name"], it["options"]).words)
        for it in policy_set["aliases"]
    ]
    former = f"\nformer names:\n{aligned_text(aliases, '  ')}" if aliases else ""
    return f"{head}\noptions:\n{options}{former}"


pool_group = command_group("pool")


@pool_group.command("add")
@click.argument("name")
@_MATCH
@_SET
@_OVERRIDE
@_settings_options
@asks_node
async def add(session: Session, /, name: str, match: tuple[str, ...], **given: Any) -> None:
    """Add a pool: all nodes whose attributes meet the conditions, now and later.

    \b
      parley pool add europe --match country=DE,FR,NL
      parley pool add fast --match 'cpu_mbps>=1000' --match tool:iperf3=true --set shares
    """  # noqa: D301 - click's mark for lines to keep
    if not match:
        msg = "name its nodes: --match country=DE, or --match '{}' for all that are known"
        raise click.UsageError(msg)
    document = {"name": name, "match": predicate(match), **_settings(session, given)}
    session.output.print_one(await session.client.add_pool(document), POOL, pool_view)


pool_group.add_list(
    "/pools", POOL, "List pools and how many nodes belong to each now.", warnings=True
)
pool_group.add_show(
    "/pools", POOL, pool_view, "Show a pool: its nodes, and why the others do not belong to it."
)


@pool_group.command("edit")
@click.argument("name")
@_MATCH
@_settings_options
@asks_node
async def edit(session: Session, /, name: str, match: tuple[str, ...], **given: Any) -> None:
    """Change which nodes belong to a pool, and how they are chosen."""
    patch = _settings(session, given)
    if match:
        patch["match"] = predicate(match)
    require_change(patch, "pool", "--match country=DE")
    session.output.print_one(await session.client.edit_pool(name, patch), POOL, pool_view)


@pool_group.command("set-policy")
@click.argument("name")
@click.argument("policy_set", metavar="SET")
@click.argument("set_options", metavar="[OPTION=VALUE]...", nargs=-1)
@_OVERRIDE
@options("""
    --dry-run      Change nothing; show who would get what in the next 24 hours, before and after:
                   with this node's campaigns, tasks and bookings.
    --anew         With --dry-run: plan the booked runs that have not begun again, too.
    --hours 1..24  With --dry-run: look so far ahead [24].
""")
@asks_node
async def set_policy(
    session: Session,
    name: str,
    policy_set: str,
    set_options: tuple[str, ...],
    overrides: tuple[str, ...],
    dry_run: bool,
    anew: bool,
    hours: int | None,
) -> None:
    """Change the policies of a pool, effective now and without a restart.

    \b
      parley pool set-policy europe shares serial=true
      parley pool set-policy europe priority weights=usual fairshare=true slots=2
      parley pool set-policy europe shares --dry-run
    """  # noqa: D301 - click's mark for lines to keep
    recipe = _recipe(session, shlex.join([policy_set, *set_options]))
    if dry_run:
        wanted = {"policy": {**recipe, "overrides": _overrides(overrides)}, "anew": anew}
        given = wanted if hours is None else {**wanted, "hours": hours}
        plan = await session.client.plan_policy(name, given)
        session.output.print_one(plan, POLICY_PLAN, policy_plan_view)
        return
    if anew or hours is not None:
        raise click.UsageError("--anew and --hours are for --dry-run")
    policy: dict[str, Any] = {**recipe, "overrides": dict.fromkeys(AXES)}
    policy["overrides"] |= _overrides(overrides)
    pool = await session.client.edit_pool(name, {"policy": policy})
    session.output.print_one(pool, POOL, pool_view)


@pool_group.command("remove")
@click.argument("name")
@asks_node
async def remove(session: Session, name: str) -> None:
    """Remove a pool that no task uses any more; its nodes stay."""
    await session.client.remove_pool(name)
    session.progress.note(f"{name} was removed.")


pool_group.add_table(
    "/policysets",
    POLICY_SET,
    "List the policy sets that a pool can have, what each is good for, and its options.",
    "sets",
)


policy_group = command_group("policy")

policy_group.add_table(
    "/policysets", POLICY_SET, "List the policy sets: what each is good for, and its options."
)


@policy_group.command("show")
@click.argument("name")
@reads_node
async def show_policy(session: ReadingSession, name: str) -> None:
    """Show a policy set: its options, and the former names that stand for it."""
    listed = (await session.reader.listed("/policysets", {})).items
    wanted = expanded(name, {}).set
    with expected_members():
        by_name = {each["name"]: each for each in listed}
        if wanted not in by_name:
            every = [*by_name, *(it["name"] for each in listed for it in each["aliases"])]
            raise click.UsageError(f"there is no policy set {name!r}; {suggestion(name, every)}")
        if name in ALIASES:
            session.progress.note(f"{name} is {ALIASES[name].words}.")
        session.output.print_one(by_name[wanted], POLICY_SET, policy_set_view)


def _recipe(session: Session, written: str) -> dict[str, Any]:
    """Return a set with its options as a document; say what an alias stands for."""
    try:
        recipe = parsed(written)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    name = written.partition(" ")[0]
    if name in ALIASES:
        session.progress.note(f"{name} is {ALIASES[name].words}.")
    return {"set": recipe.set, "options": dict(recipe.options)}


def _settings(session: Session, given: dict[str, Any]) -> dict[str, Any]:
    document = given_values(given, "choice", "description")
    for name, duration in given_values(given, "term", "patience").items():
        document[name] = times.format_duration(duration)
    policy: dict[str, Any] = {}
    if given.get("policy_set") is not None:
        policy |= _recipe(session, given["policy_set"])
    if given.get("overrides"):
        policy["overrides"] = _overrides(given["overrides"])
    return {**document, "policy": policy} if policy else document


def _overrides(written: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return rules and parameters by axis, as in ``order=next-run`` and ``fill.depth=2``."""
    overrides: dict[str, dict[str, Any]] = {}
    for text in written:
        name, equals, value = text.partition("=")
        axis, _, parameter = name.partition(".")
        if not equals or not value or axis not in AXES:
            msg = f"{text!r} is not AXIS=RULE; axes are: {', '.join(AXES)}"
            raise click.BadParameter(msg, param_hint="--override")
        overrides.setdefault(axis, {})[parameter or "rule"] = json_of(value)
    return overrides
