"""``parley node``, ``test`` and ``tool``: who takes part, what can be measured, and by what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from node.cli.attributes import MATCH_HELP, assignment, predicate
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
from node.cli.times import local
from node.model.errors import NotFound

if TYPE_CHECKING:
    from node.model.wire.nodes import NodeAddition


def _reached(node: Record) -> str:
    if node["is_self"]:
        return "here"
    if node["unreachable_since"]:
        return f"unreachable since {local(node['unreachable_since'])}: {node['last_error'] or ''}"
    return local(node["seen_at"]) or ("has not asked yet" if node["url"] is None else "not yet")


def _attributes(node: Record) -> str:
    """What was said of it; the tools it has are on its own page."""
    said = sorted(node["attributes"].items())
    return " ".join(f"{name}={flat(value)}" for name, value in said if ":" not in name)


NODE = RecordLayout(
    columns=(
        Column("node", lambda node: node["name"] + (" (this)" if node["is_self"] else "")),
        Column("address", lambda node: node["address"]),
        Column("url", lambda node: node["url"] or "pull"),
        Column("seen", _reached),
        Column("attributes", _attributes),
    ),
    fields=(
        "name",
        "url",
        "address",
        "identity",
        "is_self",
        "seen_at",
        "unreachable_since",
        "busy_until",
        "shortfall",
        "lanes",
        "attributes",
    ),
    empty="No nodes. Make one known: parley node add http://HOST:8642",
    key="name",
)  # fmt: skip

TEST = RecordLayout(
    columns=(
        Column("test", lambda test: test["name"], whole=True),
        Column("title", lambda test: test["title"]),
        Column("tools here", lambda test: " ".join(test["tools"]) or "none: see parley tool list"),
    ),
    fields=("name", "title", "tools"),
    empty="This node knows no tests.",
    key="name",
)

TOOL = RecordLayout(
    columns=(
        Column("tool", lambda tool: tool["name"], whole=True),
        Column("for", lambda tool: " ".join(tool["tests"])),
        Column("here", lambda tool: "yes" if tool["available"] else "no", whole=True),
        Column("what is missing", lambda tool: tool["reason"] or ""),
    ),
    fields=("name", "tests", "available", "reason"),
    empty="This node knows no tools.",
    key="name",
)


@click.group("node")
def node_group() -> None:
    """List, show, add and remove the nodes that this node knows, and say what this one is."""


@node_group.command("list")
@click.option("--match", multiple=True, metavar="CONDITION", help=MATCH_HELP)
@asks_node
async def list_nodes(session: Session, match: tuple[str, ...]) -> None:
    """List the nodes that this node knows, itself included, or those that meet the conditions."""
    found = await session.client.nodes(predicate(match))
    session.output.many(records_of(found.items), NODE)


@node_group.command("set")
@click.argument("attributes", nargs=-1, required=True, metavar="KEY=VALUE...")
@asks_node
async def set_attributes(session: Session, attributes: tuple[str, ...]) -> None:
    """Say what this node is: attributes by which pools choose nodes.

    \b
      parley node set country=DE site=ber-1 cpu_mbps=1000 behind_nat=false
    """  # noqa: D301 - click's mark for lines to keep
    changed = await session.client.set_attributes(dict(map(assignment, attributes)))
    session.output.one(changed.model_dump(mode="json"), NODE, node_view)


@node_group.command("unset")
@click.argument("names", nargs=-1, required=True, metavar="KEY...")
@asks_node
async def unset(session: Session, names: tuple[str, ...]) -> None:
    """Take back attributes of this node that were set with 'parley node set'."""
    here = next(node for node in (await session.client.nodes()).items if node.is_self)
    for name in dict.fromkeys(names):
        if name not in here.attributes:
            session.progress.note(f"! {name} was not set: {_there(here.attributes)}")
    changed = await session.client.set_attributes(dict.fromkeys(names))
    session.output.one(changed.model_dump(mode="json"), NODE, node_view)


def _there(attributes: Mapping[str, Any]) -> str:
    """What could be meant; what the host says of itself is not set by hand."""
    names = [name for name in sorted(attributes) if ":" not in name]
    return (
        f"there {'is' if len(names) == 1 else 'are'} {', '.join(names)}" if names else "nothing is"
    )


@node_group.command("show")
@click.argument("name", required=False)
@asks_node
async def show(session: Session, name: str | None) -> None:
    """Show a node; without NAME this one, with the identity to give to others."""
    known = (await session.client.nodes()).items
    found = [node for node in known if (node.is_self if name is None else node.name == name)]
    if not found:
        msg = f"no node is called {name}; known are: {', '.join(node.name for node in known)}"
        raise NotFound(msg)
    session.output.one(found[0].model_dump(mode="json"), NODE, node_view)


@node_group.command("add")
@click.argument("url", metavar="URL|ed25519:KEY")
@click.option("--identity", metavar="ed25519:KEY", help="The key to expect, told by its owner.")
@asks_node
async def add(session: Session, url: str, identity: str | None) -> None:
    """Make a node known by the URL of its API; its key is pinned.

    Without --identity the key that is found there is trusted: compare it with what
    'parley node show' says over there.

    A node that no other reaches (parley up --pull) has no URL: give its key instead. It appears
    with its name as soon as it asks for its work.
    """
    from pydantic import ValidationError  # slow to load

    from node.model.errors import InvalidDocument
    from node.model.wire.nodes import NodeAddition
    from node.model.wire.validation import faults_of

    try:
        addition = _addition(url, identity)
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, NodeAddition)) from error
    node = await session.client.add_node(addition)
    session.output.one(node.model_dump(mode="json"), NODE, node_view)
    if node.url is None:
        session.progress.note(f"{node.name} is to ask for its work: parley node list says when.")
    elif identity is None:
        session.progress.note(f"Trusted the key found at {url}; compare it with its owner.")


def _addition(url: str, identity: str | None) -> NodeAddition:
    from node.model.wire.nodes import NodeAddition  # slow to load

    if url.startswith("ed25519:"):
        return NodeAddition(identity=url)
    whole = url if "://" in url else f"http://{url}"
    return NodeAddition(url=whole.rstrip("/"), identity=identity)


@node_group.command("remove")
@click.argument("name")
@asks_node
async def remove(session: Session, name: str) -> None:
    """Forget a node; nothing is planned with it any more."""
    await session.client.remove_node(name)
    session.progress.note(f"{name} is forgotten.")


def node_view(node: Record) -> str:
    """A node for a person."""
    return pairs(
        (
            ("node", node["name"]),
            ("identity", node["identity"]),
            ("url", node["url"] or "none: it fetches its work itself"),
            ("address", node["address"]),
            ("version", node["version"]),
            ("known since", local(node["added_at"])),
            ("seen", _reached(node)),
            ("last error", node["last_error"]),
            ("busy until", local(node["busy_until"])),
            ("free time ahead", node["shortfall"]),
            ("lanes", node["lanes"]),
            *((name, flat(value)) for name, value in sorted(node["attributes"].items())),
        )
    )


@click.group("test")
def test_group() -> None:
    """List and show what can be measured."""


@test_group.command("list")
@asks_node
async def list_tests(session: Session) -> None:
    """List the tests and the tools for them on this node."""
    session.output.many(records_of((await session.client.tests()).items), TEST)


@test_group.command("show")
@click.argument("name")
@asks_node
async def show_test(session: Session, name: str) -> None:
    """Show a test: the fields of its spec, their defaults and what they mean."""
    test = await session.client.test(name)
    session.output.one(test.model_dump(mode="json"), TEST, test_view)


def test_view(test: Record) -> str:
    """A test for a person."""
    spec = test["spec"]
    needed = spec.get("required", ())
    rows = [
        (f"  {name}", _default(name, field, needed), printable(field.get("description", "")))
        for name, field in spec.get("properties", {}).items()
    ]
    head = f"{test['name']}: {test['title']}\ntools here: {' '.join(test['tools']) or 'none'}"
    return "\n".join([head, "spec:", aligned(rows)]) if rows else head


def _default(name: str, field: Mapping[str, Any], needed: tuple[str, ...]) -> str:
    if name in needed:
        return "required"
    return flat(field.get("default")) or "-"


@click.group("tool")
def tool_group() -> None:
    """List the programs that measure."""


@tool_group.command("list")
@asks_node
async def list_tools(session: Session) -> None:
    """List the tools; one that is missing is named with the package that brings it."""
    session.output.many(records_of((await session.client.tools()).items), TOOL)
