"""``parley node add --from``: the hosts of a template of psConfig that run pScheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from node.cli import templates
from node.cli.meshimport import omission_lines
from node.cli.output import Column, RecordLayout, plural
from node.cli.published import Documents
from node.cli.session import Session
from node.model.errors import FieldFault, InvalidDocument, ParleyError
from node.model.wire.nodes import NodeAddition
from node.pscheduler.psconfig.template import is_template

_AT_ONCE = 8
_NONE_ADDED = 1
"""Exit code: no host of the template answered as pScheduler does."""

_HOST = RecordLayout(
    "host,node,url,reason",
    Column("host", lambda each: each["host"], whole=True),
    Column("node", lambda each: each["node"] or "not added"),
    Column("detail", lambda each: each["reason"] or each["url"]),
    empty="All hosts of the template are known here.",
    key="host",
)


async def add_hosts(session: Session, source: str, *, insecure: bool) -> int:
    """Ask each host of a template that is not known here for pScheduler; add those that answer.

    Return the exit code of the command.

    :raises InvalidDocument: the source is no template, or a broken one.
    :raises PeerUnreachable: the template, or one that it includes, is away.
    """
    read = Documents(insecure=insecure)
    text = await read.read_named(source)
    if not is_template(text):
        raise InvalidDocument([FieldFault("", "is no template of psConfig")])
    tried: dict[str, dict[str, str | None]] = {}
    # A pair is left out for the first of its hosts that is unknown; the others are met later.
    while True:
        made = await templates.translate_template(session, text, source, read)
        left = [host for host in made.strangers if host not in tried]
        if not left:
            break
        session.progress.note(f"Asking {plural(len(left), 'host')} for pScheduler …")
        tried |= await _try_all(session, left)
    records = [{"host": host, **outcome} for host, outcome in sorted(tried.items())]
    session.output.print_list(records, _HOST)
    added = sum(each["node"] is not None for each in records)
    if not records:
        if not made.tasks:
            session.progress.note("\n".join(omission_lines(made.omissions)))
        return 0
    session.progress.note(
        f"{added} of {plural(len(records), 'host')} added. They have no keys: whoever answers at "
        "such a URL is taken for the host. A host that runs Parley is added by its own URL."
    )
    return 0 if added else _NONE_ADDED


async def _try_all(session: Session, hosts: Sequence[str]) -> dict[str, dict[str, str | None]]:
    places = asyncio.Semaphore(_AT_ONCE)

    async def add(host: str) -> dict[str, str | None]:
        shown = f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
        url = f"https://{shown}/pscheduler"
        async with places:
            try:
                node = await session.client.add_node(NodeAddition(url=url))
            except (ParleyError, ValueError) as error:
                reason = error.detail if isinstance(error, ParleyError) else str(error)
                return {"node": None, "url": url, "reason": reason}
        return {"node": node.name, "url": url, "reason": None}

    return dict(zip(hosts, await asyncio.gather(*map(add, hosts)), strict=True))
