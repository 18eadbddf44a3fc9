"""A published document names its own place and public addresses, within a bound."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click
import pytest
import pytest_asyncio
from aiohttp import web

from node.cli.published import REDIRECTS_MAX, SIZE_MAX, Documents
from node.cli.templates import translate_with_jq, with_includes
from node.model.errors import InvalidDocument, PeerUnreachable
from node.pscheduler.psconfig.nodes import NodeFinder
from node.pscheduler.psconfig.translation import Fleet
from node.pscheduler.tests.registry import LANGUAGES
from tests.support.loopback import serving

ADDRESSES = {"addresses": {"a": {"address": "a"}}}


class Site:
    """A server of documents, which counts who asks."""

    def __init__(self) -> None:
        """Publish nothing yet."""
        self.url = ""
        self.asked: list[str] = []
        self.texts: dict[str, str] = {"/nodes.json": json.dumps(ADDRESSES)}
        self.moved: dict[str, str] = {}

    async def answer(self, request: web.Request) -> web.Response:
        """Return a document, or where it is now."""
        self.asked.append(request.path)
        if (to := self.moved.get(request.path)) is not None:
            return web.Response(status=302, headers={"Location": to})
        return web.Response(text=self.texts[request.path])


async def _site() -> AsyncIterator[Site]:
    made = Site()
    app = web.Application()
    app.router.add_get("/{name:.*}", made.answer)
    async with serving(app) as url:
        made.url = url
        yield made


@pytest_asyncio.fixture(name="site")
async def site_(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """The server of a publisher."""
    async for made in _site():
        yield made


@pytest_asyncio.fixture(name="inner")
async def inner_(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """A server of this host at another port, which nobody else reaches."""
    async for made in _site():
        yield made


def template(*includes: str) -> str:
    """Return a template without addresses of its own."""
    task = {"group": "g", "test": "t", "schedule": "s"}
    sections: dict[str, Any] = {
        "groups": {"g": {"type": "mesh", "addresses": [{"name": "a"}]}},
        "tests": {"t": {"type": "rtt", "spec": {}}},
        "schedules": {"s": {"repeat": "PT1H"}},
        "tasks": {"x": task},
    }
    return json.dumps({"includes": list(includes), **sections})


async def read(source: str, **options: Any) -> dict[str, Any]:
    """Return a template with what it includes."""
    documents = Documents(insecure=False, **options)
    whole, _ = await with_includes(await documents.read_named(source), source, documents)
    return whole


async def test_a_template_includes_from_its_own_place(site: Site) -> None:
    """A relative name, and another path of the place that the person has named, are read."""
    site.texts["/ps.json"] = template("nodes.json", f"{site.url}/more.json")
    site.texts["/more.json"] = json.dumps({"addresses": {"b": {"address": "b"}}})
    assert set((await read(f"{site.url}/ps.json"))["addresses"]) == {"a", "b"}


async def test_a_template_reaches_no_file_and_nothing_inside(site: Site, inner: Site) -> None:
    """A publisher names no file, no other port of this host, no private address, no metadata."""
    for name in (
        "file:///etc/hostname",
        "file:///dev/zero",
        f"{inner.url}/nodes.json",
        f"http://localhost:{inner.url.rpartition(':')[2]}/nodes.json",
        f"http://0x7f000001:{inner.url.rpartition(':')[2]}/nodes.json",
        f"http://\uff11\uff12\uff17.0.0.1:{inner.url.rpartition(':')[2]}/nodes.json",
        f"http://127\u30020\u30020\u30021:{inner.url.rpartition(':')[2]}/nodes.json",
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1/nodes.json",
        "https://[::ffff:127.0.0.1]/nodes.json",
        "ftp://192.0.2.1/nodes.json",
        "http://[::1/nodes.json",
    ):
        site.texts["/ps.json"] = template(name)
        with pytest.raises((InvalidDocument, PeerUnreachable)):
            await read(f"{site.url}/ps.json")
    assert inner.asked == []


async def test_a_redirect_is_the_word_of_the_publisher(site: Site, inner: Site) -> None:
    """A redirect leads to nothing that the publisher could not name, and ends."""
    site.moved["/ps.json"] = f"{inner.url}/nodes.json"
    with pytest.raises(InvalidDocument, match="may not name"):
        await read(f"{site.url}/ps.json")
    site.moved["/ps.json"] = "file:///etc/hostname"
    with pytest.raises(InvalidDocument, match="may not name"):
        await read(f"{site.url}/ps.json")
    assert inner.asked == []
    site.moved["/ps.json"] = "/now.json"
    site.texts["/now.json"] = template("nodes.json")
    assert set((await read(f"{site.url}/ps.json"))["addresses"]) == {"a"}
    site.moved["/now.json"] = "/now.json"
    with pytest.raises(PeerUnreachable, match="leads to more than"):
        await read(f"{site.url}/ps.json")
    assert site.asked.count("/now.json") == 1 + REDIRECTS_MAX


async def test_all_documents_together_are_bounded(site: Site, tmp_path: Path) -> None:
    """A bound is shared by the documents of a command, and ends files without an end as well."""
    site.texts["/ps.json"] = template("nodes.json")
    size = len(site.texts["/ps.json"]) + len(site.texts["/nodes.json"])
    await read(f"{site.url}/ps.json", size_max=size)
    with pytest.raises(InvalidDocument, match="with all that it includes"):
        await read(f"{site.url}/ps.json", size_max=size - 1)
    with pytest.raises(InvalidDocument, match=f"{SIZE_MAX:,} bytes"):
        await Documents(insecure=False).read_named("/dev/zero")


async def test_all_documents_together_have_a_time(site: Site) -> None:
    """A publisher whose documents come slowly does not hold up whoever reads them for long."""
    documents = Documents(insecure=False, within_s=0)
    with pytest.raises(PeerUnreachable, match="did not answer in time"):
        await documents.read_named(f"{site.url}/nodes.json")


async def test_a_template_has_so_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes that name each other take ever longer to resolve, and end with that as the fault."""
    current = {"data-source": {"type": "current-config"}}
    whole = json.loads(template()) | {"includes": []}
    whole["addresses"] = {f"h{number}": {"address": f"h{number}"} for number in range(20)}
    whole["address-classes"] = {
        f"c{number}": {
            **current,
            "match-filter": {"type": "address-class", "class": f"c{number + 1}"},
        }
        for number in range(18)
    }
    whole["groups"]["g"]["addresses"] = [{"class": "c0"}]
    whole |= {name: {} for name in ("archives", "contexts", "hosts", "subtasks")}
    monkeypatch.setattr("node.cli.templates.WORK_S", 0.2)
    fleet = Fleet(NodeFinder([], {}, {}), set(), {}, LANGUAGES)
    with pytest.raises(InvalidDocument) as refused:
        await translate_with_jq(whole, "m", fleet, 0)
    assert "takes more than 0.2 s of work" in refused.value.faults[0].detail


async def test_a_file_is_the_word_of_its_owner(site: Site, tmp_path: Path) -> None:
    """A template in a file includes files and any URL; what a URL of these includes is bound."""
    (tmp_path / "own.json").write_text(json.dumps({"addresses": {"o": {"address": "o"}}}))
    main = tmp_path / "ps.json"
    main.write_text(template(f"file://{tmp_path}/own.json", f"{site.url}/nodes.json"))
    assert set((await read(str(main)))["addresses"]) == {"o", "a"}
    site.texts["/nodes.json"] = json.dumps({**ADDRESSES, "includes": ["file:///etc/hostname"]})
    with pytest.raises(InvalidDocument, match="may not name file:"):
        await read(str(main))
    with pytest.raises(click.BadParameter):
        await read(str(tmp_path / "none.json"))
