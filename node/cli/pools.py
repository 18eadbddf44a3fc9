"""``parley pool``: named sets of nodes, and the policies by which campaigns share them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from node.cli.attributes import MATCH_HELP, json_of, predicate
from node.cli.listing import collect, limit_option, print_truncation, print_warnings
from node.cli.output import (
    Column,
    Record,
    RecordLayout,
    aligned,
    flat,
    pairs,
    printable,
    records_of,
)
from node.cli.session import Session, asks_node
from node.cli.times import DURATION
from node.model import times
from node.model.policysets import AXES

if TYPE_CHECKING:
    from node.client.responses import Page
    from node.model.wire.pools import Pool


def _match(pool: Record) -> str:
    from node.model.predicates import parse

    return printable(parse(pool["match"]).in_words())


def _set_name(each: Record) -> str:
    return f"{each['name']} (recommended)" if each["recommended"] else str(each["name"])


def _policy(pool: Record) -> str:
    policy = pool["policy"]
    other = [f"{axis}: {_overridden(wanted)}" for axis, wanted in policy["overrides"].items()]
    return f"{policy['set']} ({'; '.join(other)})" if other else str(policy["set"])


def _overridden(wanted: Record) -> str:
    given = [f"{name} {flat(value)}" for name, value in wanted.items() if name != "rule"]
    return ", ".join([*([str(wanted["rule"])] if "rule" in wanted else []), *given])


POOL = RecordLayout(
    columns=(
        Column("pool", lambda pool: pool["name"], whole=True),
        Column("nodes", lambda pool: str(len(pool["nodes"])), whole=True),
        Column("match", _match),
        Column("policy", _policy),
        Column("choice", lambda pool: pool["choice"], whole=True),
    ),
    fields=("name", "match", "nodes", "policy.set", "choice", "lead", "revision"),
    empty="No pools. Add one: parley pool add NAME --match country=DE",
    key="name",
)

POLICY_SET = RecordLayout(
    columns=(
        Column("set", _set_name, whole=True),
        Column("good for", lambda each: each["good_for"]),
    ),
    fields=("name", "good_for", "recommended"),
    empty="This node knows no sets.",
    key="name",
)

_MATCH = click.option("--match", "match", multiple=True, metavar="CONDITION", help=MATCH_HELP)
_SET = click.option("--set", "policy_set", metavar="SET", help="Policies; see: parley pool sets.")
_OVERRIDE = click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="AXIS=RULE|AXIS.PARAMETER=VALUE",
    help="Answer one question otherwise: order=next-run, share.window=PT30M; repeat for others.",
)
_CHOICE = click.option(
    "--choice",
    type=click.Choice(("sticky", "rotating")),
    help="Who measures a target again: the same, or each in turn. "
    "rotating makes a term, and a task for each seat, for every run.",
)
_TERM = click.option(
    "--term",
    type=DURATION,
    help="Nodes are chosen for so long at a time, with a task for each seat [6h]; of rotating "
    "pools it is one run.",
)
_PATIENCE = click.option(
    "--patience", type=DURATION, help="A node that has not answered so long loses its seats [10m]."
)
_DESCRIPTION = click.option("--description", help="What it is for.")


@click.group("pool")
def pool_group() -> None:
    """Add, list, show, edit and remove pools, and choose their policies."""


@pool_group.command("add")
@click.argument("name")
@_MATCH
@_SET
@_OVERRIDE
@_CHOICE
@_TERM
@_PATIENCE
@_DESCRIPTION
@asks_node
async def add(session: Session, /, name: str, match: tuple[str, ...], **given: Any) -> None:
    """Add a pool: all nodes whose attributes meet the conditions, now and later.

    \b
      parley pool add europe --match country=DE,FR,NL
      parley pool add fast --match 'cpu_mbps>=1000' --match tool:iperf3=true --set gridserver-usage
    """  # noqa: D301 - click's mark for lines to keep
    if not match:
        msg = "say which nodes: --match country=DE, or --match '{}' for all that are known"
        raise click.UsageError(msg)
    document = {"name": name, "match": predicate(match), **_settings(given)}
    made = await session.client.add_pool(document)
    session.output.one(made.model_dump(mode="json"), POOL, pool_view)


@pool_group.command("list")
@limit_option
@asks_node
async def list_pools(session: Session, limit: int) -> None:
    """List pools and how many nodes belong to each now."""

    async def page(size: int, cursor: str | None) -> Page[Pool]:
        return await session.client.pools(limit=size, cursor=cursor)

    found, more = await collect(page, limit)
    records = records_of(found)
    session.output.many(records, POOL)
    print_warnings(session, records)
    print_truncation(session, more=more)


@pool_group.command("show")
@click.argument("name")
@asks_node
async def show(session: Session, name: str) -> None:
    """Show a pool: which nodes belong to it, and why the others do not."""
    found = await session.client.pool(name)
    session.output.one(found.model_dump(mode="json"), POOL, pool_view)


@pool_group.command("edit")
@click.argument("name")
@_MATCH
@_CHOICE
@_TERM
@_PATIENCE
@_DESCRIPTION
@asks_node
async def edit(session: Session, /, name: str, match: tuple[str, ...], **given: Any) -> None:
    """Change which nodes belong to a pool, and who of them is chosen."""
    patch = _settings(given)
    if match:
        patch["match"] = predicate(match)
    if not patch:
        msg = "say what to change, such as --match country=DE; see: parley pool edit --help"
        raise click.UsageError(msg)
    edited = await session.client.edit_pool(name, patch)
    session.output.one(edited.model_dump(mode="json"), POOL, pool_view)


@pool_group.command("set-policy")
@click.argument("name")
@click.argument("policy_set", metavar="SET")
@_OVERRIDE
@asks_node
async def set_policy(
    session: Session, name: str, policy_set: str, overrides: tuple[str, ...]
) -> None:
    """Give a pool other policies, from now on and without a restart."""
    policy: dict[str, Any] = {"set": policy_set, "overrides": dict.fromkeys(AXES)}
    policy["overrides"] |= _overrides(overrides)
    edited = await session.client.edit_pool(name, {"policy": policy})
    session.output.one(edited.model_dump(mode="json"), POOL, pool_view)


@pool_group.command("remove")
@click.argument("name")
@asks_node
async def remove(session: Session, name: str) -> None:
    """Remove a pool that no task wants nodes of any more; its nodes stay."""
    await session.client.remove_pool(name)
    session.progress.note(f"{name} is removed.")


@pool_group.command("sets")
@asks_node
async def sets(session: Session) -> None:
    """List the sets of policies that a pool may be given, and what each is good for."""
    session.output.many(records_of((await session.client.policy_sets()).items), POLICY_SET)


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    document = {name: given[name] for name in ("choice", "description") if given[name] is not None}
    for name in ("term", "patience"):
        if given[name] is not None:
            document[name] = times.format_duration(given[name])
    policy: dict[str, Any] = {}
    if given.get("policy_set") is not None:
        policy["set"] = given["policy_set"]
    if given.get("overrides"):
        policy["overrides"] = _overrides(given["overrides"])
    return {**document, "policy": policy} if policy else document


def _overrides(written: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``order=next-run`` and ``fill.depth=2`` by axis."""
    found: dict[str, dict[str, Any]] = {}
    for text in written:
        name, equals, value = text.partition("=")
        axis, _, parameter = name.partition(".")
        if not equals or not value or axis not in AXES:
            msg = f"{text!r} is not AXIS=RULE; axes are: {', '.join(AXES)}"
            raise click.BadParameter(msg, param_hint="--override")
        found.setdefault(axis, {})[parameter or "rule"] = json_of(value)
    return found


def pool_view(pool: Record) -> str:
    """A pool for a person."""
    head = pairs(
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
            *(("warning", printable(warning)) for warning in pool["warnings"]),
        )
    )
    rows = [(other["node"], printable(other["reason"])) for other in pool["others"]]
    return f"{head}\nnot in it:\n{aligned(rows, '  ')}" if rows else head
