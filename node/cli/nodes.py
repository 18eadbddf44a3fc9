"""``parley node``, ``test`` and ``tool``: the known nodes, the tests, and the tools for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from node.cli.groups import command_group
from node.cli.invocation import with_scheme
from node.cli.listing import print_record, print_whole
from node.cli.options import options
from node.cli.output import (
    Column,
    Record,
    RecordLayout,
    aligned_text,
    cell_text,
    pairs_text,
    plural,
    readable_text,
)
from node.cli.servers import confirm, require_terminal
from node.cli.session import ReadingSession, Session, asks_node, reads_node
from node.cli.times import local_time_text
from node.cli.values import MATCH_HELP, assignment, predicate
from node.model.errors import NotFound, PeerError, PeerUnreachable
from node.model.loopback import is_exposed, is_loopback
from node.model.nodekinds import NodeKind, pscheduler_identity

if TYPE_CHECKING:
    from node.model.wire.comparisons import NodeComparison
    from node.model.wire.nodes import Node, NodeAddition, NodeRemoval

_COUNTS = ("tasks", "runs", "found")


def _reach_text(node: Record) -> str:
    if node["is_self"]:
        return "here"
    if node["kind"] == NodeKind.PSCHEDULER and not node["unreachable_since"]:
        return local_time_text(node["seen_at"]) or "not yet"
    if node["knows_this"] is False:
        return f"known here, not there, since {local_time_text(node['unreachable_since'])}"
    if node["unreachable_since"]:
        since = local_time_text(node["unreachable_since"])
        return f"unreachable since {since}: {node['last_error'] or ''}"
    return local_time_text(node["seen_at"]) or (
        "has not asked yet" if node["url"] is None else "not yet"
    )


def _attributes(node: Record) -> str:
    """Format the attributes that its owner set, not those that the host detects (``tool:…``)."""
    attributes = sorted(node["attributes"].items())
    return " ".join(f"{name}={cell_text(value)}" for name, value in attributes if ":" not in name)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:g} %"


def _other_kind(node: Record) -> str:
    """Return the kind of software of a node that does not run Parley; empty for Parley."""
    return "" if _is_parley(node) else str(node["kind"])


NODE = RecordLayout(
    "name,kind,url,address,identity,is_self,seen_at,unreachable_since,busy_until,shortfall,lanes,"
    "attributes",
    Column("node", lambda node: node["name"] + (" (this)" if node["is_self"] else "")),
    Column("kind", _other_kind, optional=True),
    Column("address", lambda node: node["address"]),
    Column("url", lambda node: node["url"] or "pull"),
    Column("seen", _reach_text),
    Column("attributes", _attributes),
    wide="identity,seen_at,unreachable_since,busy_until,shortfall,lanes",
    empty="No nodes. Add one: parley node add https://HOST:8642",
    model="node.model.wire.nodes:Node",
)

DIFFERENCE = RecordLayout(
    "lead,task,run,difference,repair",
    Column("led by", lambda each: each["lead"]),
    Column("task", lambda each: each["task"], whole=True),
    Column("run", lambda each: each["run"] or "", whole=True),
    Column("what differed", lambda each: each["difference"]),
    Column("repair", lambda each: each["repair"]),
    empty="Nothing differs.",
    key="task",
)

SHARE = RecordLayout(
    "lead,identity,share,percent,had,had_percent,booked",
    Column("lead", lambda each: each["lead"], whole=True),
    Column("share", lambda each: "" if each["share"] is None else str(each["share"])),
    Column("part", lambda each: _percent(each["percent"])),
    Column("had in 24 h", lambda each: each["had"]),
    Column("of all", lambda each: _percent(each["had_percent"])),
    Column("booked", lambda each: each["booked"]),
    empty="No shares are set, and no lead had time here. Set them in the file of limits: [shares]",
)

TEST = RecordLayout(
    "name,title,tools",
    Column("test", lambda test: test["name"], whole=True),
    Column("title", lambda test: test["title"]),
    Column("tools here", lambda test: " ".join(test["tools"]) or "none: see parley tool list"),
    empty="This node has no tests.",
)

TOOL = RecordLayout(
    "name,tests,available,reason",
    Column("tool", lambda tool: tool["name"], whole=True),
    Column("for", lambda tool: " ".join(tool["tests"])),
    Column("here", lambda tool: "yes" if tool["available"] else "no", whole=True),
    Column("what is missing", lambda tool: tool["reason"] or ""),
    empty="This node has no tools.",
)


_LATE = {
    "drain": "node.cli.draining:drain",
    "undrain": "node.cli.draining:undrain",
    "introduce": "node.cli.introducing:introduce",
    "rekey": "node.cli.keys:rekey",
    "revoke": "node.cli.keys:revoke",
}


node_group = command_group("node", _LATE)


@node_group.command("list")
@click.option("--match", multiple=True, metavar="CONDITION", help=MATCH_HELP)
@reads_node
async def list_nodes(session: ReadingSession, match: tuple[str, ...]) -> None:
    """List the nodes that this node knows, itself included, or those that meet the conditions."""
    conditions = predicate(match)
    query = {"match": json.dumps(conditions) if conditions else None}
    await print_whole(session, NODE, "/nodes", query)


@node_group.command("set")
@click.argument("attributes", nargs=-1, required=True, metavar="KEY=VALUE...")
@asks_node
async def set_attributes(session: Session, attributes: tuple[str, ...]) -> None:
    """Set attributes of this node; pools choose nodes by them.

    \b
      parley node set country=DE site=ber-1 cpu_mbps=1000 behind_nat=false
    """  # noqa: D301 - click's mark for lines to keep
    node = await session.client.set_attributes(dict(map(assignment, attributes)))
    session.output.print_one(node, NODE, node_view)


@node_group.command("unset")
@click.argument("names", nargs=-1, required=True, metavar="KEY...")
@asks_node
async def unset(session: Session, names: tuple[str, ...]) -> None:
    """Remove attributes of this node that were set with 'parley node set'."""
    here = next(node for node in (await session.client.nodes()).items if node.is_self)
    for name in dict.fromkeys(names):
        if name not in here.attributes:
            session.progress.note(f"! {name} was not set: {_settable_names(here.attributes)}")
    node = await session.client.set_attributes(dict.fromkeys(names))
    session.output.print_one(node, NODE, node_view)


def _settable_names(attributes: Mapping[str, Any]) -> str:
    """Return the attributes that can be unset, in words; the host sets the others by itself."""
    names = [name for name in sorted(attributes) if ":" not in name]
    return f"the node has {', '.join(names)}" if names else "the node has none"


@node_group.command("show")
@click.argument("name", required=False)
@reads_node
async def show(session: ReadingSession, name: str | None) -> None:
    """Show a node; without NAME this one, with the identity to give to others."""
    nodes = (await session.reader.listed("/nodes", {})).items
    node = next((n for n in nodes if (n["is_self"] if name is None else n["name"] == name)), None)
    if node is None:
        names = ", ".join(str(node["name"]) for node in nodes)
        raise NotFound(f"no node is called {name}; this node knows {names}")
    print_record(session, NODE, node, node_view)


@node_group.command("add")
@click.argument("url", required=False, metavar="URL|ed25519:KEY")
@options("""
    --identity ed25519:KEY          The key to expect, from its owner.
    --from FILE|URL as template     Add all hosts of a template of psConfig that run pScheduler.
    --insecure                      Accept any certificate of the template's server.
""")
@asks_node
async def add(
    session: Session, url: str | None, identity: str | None, template: str | None, *, insecure: bool
) -> int:
    """Add a node by the URL of its API; its key is pinned.

    Anybody on the way could answer with a key of their own, unless the URL has https and public
    authorities certify its name. So beyond this host either give the identity, which its owner sees
    with 'parley node show', or compare it when asked. HOST:PORT means https, on this host http.

    A node that no other node can reach (parley up --pull) has no URL: give its key instead. It
    appears with its name as soon as it fetches its work.

    A host that runs pScheduler is added by https://HOST/pscheduler. It takes part in tasks, behind
    a node of Parley. It has no key: whoever answers at the URL is taken for it. With --from, all
    hosts of a template of psConfig are asked for pScheduler, and those that answer are added.
    """
    if template is not None:
        if url is not None or identity is not None:
            raise click.UsageError("--from names the hosts; leave out the URL and --identity")
        from node.cli.template_hosts import add_hosts  # loads aiohttp and all tests

        return await add_hosts(session, template, insecure=insecure)
    if url is None:
        raise click.UsageError("name the node by its URL or key, or give --from TEMPLATE")
    await _add(session, url, identity)
    return 0


async def _add(session: Session, url: str, identity: str | None) -> None:
    from pydantic import ValidationError  # slow to load

    from node.model.errors import InvalidDocument
    from node.model.wire.nodes import NodeAddition
    from node.model.wire.validation import faults_of

    try:
        addition = _addition(url, identity)
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, NodeAddition)) from error
    if addition.url is not None and pscheduler_identity(addition.url) is not None:
        node = await session.client.add_node(addition)
        session.output.print_one(node, NODE, node_view)
        session.progress.note(_unproven_text(node))
        return
    if addition.url is not None and identity is None:
        found = _confirmed_identity(addition.url)
        addition = addition.model_copy(update={"identity": found})
    node = await session.client.add_node(addition)
    session.output.print_one(node, NODE, node_view)
    if node.url is None:
        session.progress.note(f"{node.name} has yet to fetch its work; parley node list says when.")
    elif addition.identity is None:
        session.progress.note(f"Trusted the key found at {url}; verify it with its owner.")
    here = next(each for each in (await session.client.nodes()).items if each.is_self)
    session.progress.note(acquaintance_text(node, here))


def _unproven_text(node: Node) -> str:
    """Return a sentence on what is not proven of a host that runs pScheduler."""
    return (
        f"! {node.name} runs pScheduler. Its certificate proves nothing: whoever answers at "
        f"{node.url} is taken for it.\n"
        "It takes part in tasks behind a node of Parley, as the server of throughput, or idle. It "
        "books without holds."
    )


def acquaintance_text(added: Node, here: Node) -> str:
    """Return whether an added node knows this one, and what its owner types if it does not."""
    if added.knows_this:
        return f"{added.name} knows {here.name}, too: they can measure together."
    known_by = here.identity if here.url is None else f"{here.url} --identity {here.identity}"
    denied = added.knows_this is False
    why = "! Known here, not there" if denied else "Both have to know each other"
    return (
        f"{why}: they measure together once the owner of {added.name} has typed there\n"
        f"  parley node add {known_by}"
    )


def _confirmed_identity(url: str) -> str | None:
    """Return the key found at a URL if a person confirms it; None if that is not necessary.

    It is not for a node on this host over http, and where the node itself will find the name
    publicly certified, or else refuse.

    :raises click.UsageError: nobody can be asked.
    :raises NotAllowed: the person does not confirm it.
    :raises PeerUnreachable: the URL does not answer this command over http.
    """
    parts = urlsplit(url)
    if parts.scheme == "http" and is_loopback(parts.hostname or ""):
        return None
    from node.client.first_contact import find  # slow to load

    if parts.scheme == "http":
        require_terminal(url, _hint(url))
    try:
        contact = find(url)
    except PeerError as error:
        if parts.scheme == "https":
            return None
        raise PeerUnreachable(
            f"no node answers this command at {url}, so its key cannot be shown; check the URL, or "
            f"give the key that its owner sees: --identity ed25519:KEY ({error.detail})"
        ) from None
    if contact.certified:
        return None
    confirm(contact, url, _hint(url))
    return contact.identity


def _hint(url: str) -> str:
    return f"parley node add {url} --identity ed25519:KEY"


def _addition(url: str, identity: str | None) -> NodeAddition:
    from node.model.wire.nodes import NodeAddition  # slow to load

    if url.startswith("ed25519:"):
        return NodeAddition(identity=url)
    whole = url if "://" in url else with_scheme(url)
    return NodeAddition(url=whole.rstrip("/"), identity=identity)


@node_group.command("pardon")
@click.argument("name")
@asks_node
async def pardon(session: Session, name: str) -> None:
    """Forget the failures and refusals of a node, so that policies choose it again.

    Failed runs on the node count no longer, and pauses after its refusals end.
    """
    node = await session.client.pardon_node(name)
    session.output.print_one(node, NODE, node_view)


node_group.add_table(
    "/shares",
    SHARE,
    """List the shares of leads in the time of this node, what each had, and has booked.

    \b
      [shares]                          # in the file of limits, then: systemctl reload parley-node
      "ed25519:…" = 3                   # 75 % if all want more than there is
      others = 1

    A share is a whole number. 'others' are all leads together that are not listed, 1 unless given.
    This node counts by its own key, if it leads tasks. A lead with 0 gets only what no other lead
    wants. Without shares whoever asks first is served.
    """,
    "share",
)


@node_group.command("remove")
@click.argument("name")
@asks_node
async def remove(session: Session, name: str) -> None:
    """Remove a node: it may ask nothing of this node any more.

    All open tasks between the two nodes end, in the same step: those that it leads here, and those
    led here that it takes part in. Their runs to come are cancelled. Tasks of a pool go on with
    other nodes. Adding the node again brings no task back.
    """
    removed = await session.client.remove_node(name)
    session.progress.note(removal_view(removed))


def removal_view(removed: NodeRemoval) -> str:
    """Say what ended with a node that was removed."""
    there, here = removed.tasks_led_there, removed.tasks_led_here
    if not there + here:
        return f"{removed.name} was removed; there were no open tasks with it."
    return (
        f"{removed.name} was removed. Ended: {plural(there, 'task')} that it led here, "
        f"{plural(here, 'task')} led here that it took part in. Runs cancelled: {removed.runs}."
    )


@node_group.command("compare")
@click.argument("name")
@asks_node
async def compare(session: Session, name: str) -> None:
    """Compare with a node now, and repair what differs.

    Both nodes compare the tasks that one of them leads and the other takes part in, with their
    revisions, their future runs, and the times of these. They do so by themselves every few
    minutes, and at once after a database was restored or lost. Tasks that were booked in the last
    two minutes and runs that start within two are left out: messages about them may be under way.
    """
    comparison = await session.client.compare_node(name)
    differences = _differences(comparison, name)
    if session.output.format in {"json", "yaml"}:
        session.output.print_document(comparison.model_dump(mode="json"))
        return
    if session.output.format != "table":
        session.output.print_list(differences, DIFFERENCE)
        return
    if differences:
        session.output.print_list(differences, DIFFERENCE)
    session.output.print_text(comparison_summary(comparison))


def _differences(comparison: NodeComparison, name: str) -> list[dict[str, Any]]:
    """Return what differed, each with the node that leads its task: this one, or ``name``."""
    sides = (("this node", comparison.led_here), (name, comparison.led_there))
    return [
        {"lead": lead, **each.model_dump(mode="json")}
        for lead, side in sides
        for each in side.differences
    ]


def comparison_summary(comparison: NodeComparison) -> str:
    """Return in one line how much was compared, and how much was repaired."""
    sides = (comparison.led_here, comparison.led_there)
    tasks, runs, found = (sum(getattr(side, it) for side in sides) for it in _COUNTS)
    compared = f"{plural(tasks, 'task')}, {plural(runs, 'run')} compared"
    if not found:
        return f"nothing differs: {compared}"
    listed = sum(len(side.differences) for side in sides)
    more = "" if listed == found else f", the first {listed} of them are listed"
    return f"{plural(found, 'difference')} repaired{more}: {compared}"


def _last_heard_text(node: Record) -> str | None:
    """Return when the last signed message of a node came; None for this node and foreign ones."""
    if node["is_self"] or not _is_parley(node):
        return None
    return local_time_text(node["heard_at"]) or "never"


def _lease_text(node: Record) -> str | None:
    """Return when the tasks that another node leads here end if it sends nothing, in words."""
    if node["lease_until"] is None:
        return None
    return f"end {local_time_text(node['lease_until'])} if it sends nothing before"


def _kind_text(node: Record) -> str:
    if _is_parley(node):
        return NodeKind.PARLEY
    return f"{node['kind']} (no key; its certificate proves nothing; books without holds)"


def _is_parley(node: Record) -> bool:
    """Return whether a node is one of Parley; nodes of earlier versions know no others."""
    return node["kind"] in {None, NodeKind.PARLEY}


def _url_text(node: Record) -> str:
    if node["url"] is None:
        return "none: it fetches its work itself"
    exposed = " (plain HTTP: whoever is on the way can read it)" if is_exposed(node["url"]) else ""
    return f"{node['url']}{exposed}"


def node_view(node: Record) -> str:
    """Describe a node for a person."""
    return pairs_text(
        (
            ("node", node["name"]),
            ("kind", _kind_text(node)),
            ("identity", node["identity"]),
            ("key", (node["keys"] or [None])[-1] if len(node["keys"] or ()) > 1 else None),
            ("url", _url_text(node)),
            ("address", node["address"]),
            ("version", node["version"]),
            ("known since", local_time_text(node["added_at"])),
            ("seen", _reach_text(node)),
            ("heard", _last_heard_text(node)),
            ("its tasks here", _lease_text(node)),
            ("last error", node["last_error"]),
            ("busy until", local_time_text(node["busy_until"])),
            ("free time ahead", node["shortfall"]),
            ("lanes", node["lanes"]),
            *(
                (name, cell_text(value))
                for name, value in sorted((node["attributes"] or {}).items())
            ),
        )
    )


test_group = command_group("test")


test_group.add_table("/tests", TEST, "List the tests, and the tools for them on this node.")


def test_view(test: Record) -> str:
    """Describe a test for a person."""
    spec = test["spec"]
    needed = spec.get("required", ())
    rows = [
        (f"  {name}", _default(name, field, needed), readable_text(field.get("description", "")))
        for name, field in spec.get("properties", {}).items()
    ]
    head = f"{test['name']}: {test['title']}\ntools here: {' '.join(test['tools']) or 'none'}"
    return "\n".join([head, "spec:", aligned_text(rows)]) if rows else head


def _default(name: str, field: Mapping[str, Any], needed: tuple[str, ...]) -> str:
    if name in needed:
        return "required"
    return readable_text(cell_text(field.get("default"))) or "-"


tool_group = command_group("tool")


tool_group.add_table(
    "/tools", TOOL, "List the tools; a missing one is named with the package that installs it."
)


test_group.add_show(
    "/tests", TEST, test_view, "Show a test: the fields of its spec, their defaults and meaning."
)
