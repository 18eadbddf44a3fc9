"""Documents of answers that a program shows without parsing them as models."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from node.api.examples import EXAMPLES
from node.cli.explain import explanation_view
from node.cli.limits import limits_view
from node.cli.nodes import node_view
from node.cli.output import Record
from node.cli.runs import run_view
from node.cli.tasks import task_view
from node.client.answers import Answer, document_of, object_of, records_in
from node.client.responses import read
from node.client.session import run_without_loop
from node.model.errors import NotFound, ParleyError, PeerAnswered
from node.model.wire.fields import Document
from node.model.wire.nodes import Node
from node.model.wire.runs import Explanation, Run
from node.model.wire.tasks import Task
from node.runtime.clock import BlockingClock


def answered(document: Any, status: int = 200) -> Answer:
    """Return an answer with this document."""
    raw = json.dumps(document).encode()
    return Answer("http://127.0.0.1:1", status, "because", "application/json", raw)


def test_missing_members_are_none_at_any_depth() -> None:
    """A member that a node does not send is None; the others are as they were."""
    page = records_in({"items": [{"a": {"b": [{"c": 1}]}}], "next": "x"})
    assert page.next == "x"
    assert page.items[0] == {"a": {"b": [{"c": 1}]}}
    assert page.items[0]["a"]["b"][0]["d"] is None
    assert page.items[0]["z"] is None


@pytest.mark.parametrize("document", [None, {}, {"items": 3}, {"items": [1]}, [1]])
def test_other_answers_than_lists_of_objects(document: Any) -> None:
    """They are told as such."""
    with pytest.raises(PeerAnswered, match="do the versions"):
        records_in(document)
    with pytest.raises(PeerAnswered, match="is not an object"):
        object_of([document])


def test_answers_of_nodes_of_other_versions_are_read() -> None:
    """Members that a later node adds are left out, at any depth; an earlier one has no headline."""
    run = {**EXAMPLES[Run], "of_a_later_version": {"items": []}}
    del run["headline"]
    assert read(Run, run).headline == run["test"]
    explanation = {**EXAMPLES[Explanation], "of_a_later_version": 1}
    explanation["decisions"] = [{**it, "later": 1} for it in explanation["decisions"]]
    del explanation["headline"]
    assert read(Explanation, explanation).headline == explanation["task"]


@pytest.mark.parametrize(
    ("model", "view"),
    [
        (Task, task_view),
        (Run, run_view),
        (Node, node_view),
        (Explanation, lambda explanation: explanation_view(explanation, 1)),
    ],
)
def test_nodes_of_earlier_versions_are_shown(
    model: type[Document], view: Callable[[Record], str]
) -> None:
    """A document without what later versions have added is described as well."""
    later = [name for name, field in model.model_fields.items() if not field.is_required()]
    assert later
    early = {name: value for name, value in EXAMPLES[model].items() if name not in later}
    assert len(view(object_of(early))) > len(model.__name__)


def test_limits_of_earlier_versions_are_shown() -> None:
    """The limits of a node that knows no resources are described as well."""
    early = {"file": "/l.toml", "loaded_at": "2026-12-01T00:00:00Z", "text": "version = 1\n"}
    assert limits_view(object_of(early)).endswith("\nversion = 1")


def test_an_answer_that_nests_without_end_is_that_of_no_node() -> None:
    """A server cannot end a program by lists in lists."""
    answer = Answer("http://127.0.0.1:1", 200, "OK", "application/json", b"[" * 90_000)
    with pytest.raises(PeerAnswered):
        document_of(answer)


def test_problems_and_strange_answers() -> None:
    """A problem document gives its error; anything else names what has answered."""
    problem = {"type": "/problems/not-found", "title": "x", "status": 404, "detail": "no such run"}
    with pytest.raises(NotFound, match="no such run"):
        document_of(answered(problem, 404))
    with pytest.raises(PeerAnswered, match="but with 404 because"):
        document_of(answered({"error": "?"}, 404))
    with pytest.raises(PeerAnswered, match="but with 302"):
        document_of(answered({}, 302))
    with pytest.raises(ParleyError, match="failed with 500"):
        document_of(answered([], 500))


def test_work_that_waits_for_a_loop_is_refused() -> None:
    """A coroutine that waits for nothing is run to its end; another one is a mistake."""

    class Waiting:
        def __await__(self) -> Any:
            yield

    async def immediate() -> int:
        return 3

    async def waiting() -> None:
        await Waiting()

    assert run_without_loop(immediate()) == 3
    run_without_loop(BlockingClock().sleep(0.001))
    with pytest.raises(RuntimeError):
        run_without_loop(waiting())
