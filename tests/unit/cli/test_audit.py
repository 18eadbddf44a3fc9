"""``parley audit --follow``: each row that is added is a line."""

from __future__ import annotations

import io
import json
from typing import Any, cast

import pytest

from node.cli.audit import _follow
from node.cli.output import OutputWriter
from node.cli.progress import Progress
from node.cli.session import Session
from node.client.responses import Page
from node.client.users import UserClient
from node.model.audit import AuditOutcome
from node.model.errors import NotAuthenticated
from node.model.principals import PrincipalKind
from node.model.wire.audit import AuditRecord
from tests.support.clocks import START, ManualClock


def record(number: int) -> AuditRecord:
    """Return a row."""
    return AuditRecord(
        id=number,
        at=START,
        kind=PrincipalKind.STRANGER,
        principal=None,
        key=None,
        role=None,
        origin="192.0.2.1",
        verb="create_task",
        thing=None,
        outcome=AuditOutcome.REFUSED,
        status=401,
        problem="not-authenticated",
        count=number,
    )


class Growing:
    """A client of a node whose audit grows by the given pages; then the token is revoked."""

    def __init__(self, *pages: tuple[int, ...]) -> None:
        self.pages = list(pages)
        self.asked: list[dict[str, Any]] = []

    async def audit(self, **query: Any) -> Page[AuditRecord]:
        """Return the next page."""
        self.asked.append(query)
        if not self.pages:
            raise NotAuthenticated("the token was revoked")
        return Page(tuple(map(record, self.pages.pop(0))), None)


@pytest.mark.parametrize("form", ["jsonl", "json", "ids", "table"])
async def test_following_prints_what_is_added(form: str, clock: ManualClock) -> None:
    """Each row that comes later is printed, once, and the cursor follows it."""
    client, written = Growing((1,), (2, 3), (), (4,)), io.StringIO()
    output = OutputWriter(form, stream=written)
    session = Session(cast(UserClient, client), clock, output, Progress(quiet=True))
    with pytest.raises(NotAuthenticated):
        await _follow(session, client.audit)
    assert [query.get("cursor") for query in client.asked] == [None, "1", "3", "3", "4"]
    lines = written.getvalue().splitlines()
    if form == "json":
        assert written.getvalue().count('"verb": "create_task"') == 3
    elif form == "jsonl":
        assert [json.loads(line)["id"] for line in lines] == [2, 3, 4]
    elif form == "ids":
        assert lines == ["2", "3", "4"]
    else:
        what = "stranger  192.0.2.1  create_task  refused 401 not-authenticated"
        assert [line.split("  ", 1)[1] for line in lines] == [
            f"{what} ({number} times)" for number in (2, 3, 4)
        ]
