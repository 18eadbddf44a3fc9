"""Validation errors in words: what is there, what is allowed, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from node.api.app import ROUTES
from node.api.openapi import openapi_document
from node.model.times import WRITTEN_DURATION
from node.model.wire.archives import ArchiveDocument
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.nodes import NodeAddition, NodePatch
from node.model.wire.pools import PoolDocument
from node.model.wire.reservations import ReservationDocument
from node.model.wire.tasks import TaskDocument
from node.model.wire.validation import PATTERNS, faults_of
from node.plugins import registry
from node.plugins.archivers.http import HttpArchiverSpec

RAW = ("Input should", "String should", "Tuple should", "Dictionary should", "Decimal input")
"""The beginning of pydantic's own sentences."""

CAMPAIGN: dict[str, Any] = {"name": "ops"}
POOL: dict[str, Any] = {"name": "europe", "match": {}}
DEMO: dict[str, Any] = {"kind": "demo", "name": "SC26", "duration": "PT1H"}
TASK: dict[str, Any] = {"test": {"type": "rtt"}}


def told(kind: type[BaseModel], document: Any) -> dict[str, str]:
    """Return the sentences about a document, by pointer."""
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(document, context=FROM_OUTSIDE)
    return {fault.pointer: fault.detail for fault in faults_of(caught.value, kind)}


@pytest.mark.parametrize(
    ("kind", "document", "pointer", "sentence"),
    [
        (CampaignDocument, {"name": "Ops!"}, "/name", 'is "Ops!"; write a small letter, then'),
        (CampaignDocument, {}, "/name", "is required: Its name, such as ops."),
        (
            TaskDocument,
            TASK | {"takes": ["link-x"]},
            "/takes/0",
            'is "link-x"; write RESOURCE@NODE, or RESOURCE@NODE:AMOUNT for more than 1',
        ),
        (
            ArchiveDocument,
            {"name": "a", "archiver": "http", "transform": {"jq": ".", "raw": False}},
            "/transform/raw",
            "false is not known; write true",
        ),
        (CampaignDocument, CAMPAIGN | {"weight": -1}, "/weight", "is -1; give 0 or more"),
        (
            CampaignDocument,
            CAMPAIGN | {"weight": "x"},
            "/weight",
            "is text; give a number, without quotes",
        ),
        (
            CampaignDocument,
            CAMPAIGN | {"weight": 0.1234567},
            "/weight",
            "is 0.1234567; write at most 6 digits behind the point",
        ),
        (
            CampaignDocument,
            CAMPAIGN | {"limits": {"rnus": {"soft": 1}}},
            "/limits/rnus",
            '"rnus" is not known; write runs',
        ),
        (
            CampaignDocument,
            CAMPAIGN | {"limits": {"foo": {"soft": 1}}},
            "/limits/foo",
            '"foo" is not known; write runs, nodes, seats, ',
        ),
        (CampaignDocument, CAMPAIGN | {"target": 20}, "/target", "must be an object with: seats,"),
        (
            CampaignDocument,
            CAMPAIGN | {"target": {"share": 1.5}},
            "/target/share",
            "is 1.5; give 1 or less",
        ),
        (
            CampaignDocument,
            CAMPAIGN | {"target": {}},
            "/target",
            "needs either seats or share; give exactly one",
        ),
        (
            CampaignDocument,
            CAMPAIGN | {"weights": 1},
            "/weights",
            "no such field; did you mean weight or timed_weights?",
        ),
        (
            CampaignDocument,
            CAMPAIGN | {"target": {"many": 1}},
            "/target/many",
            "no such field; there are: seats, share",
        ),
        (CampaignDocument, [], "", "must be an object with: name, parent, "),
        (
            PoolDocument,
            POOL | {"policy": {"overrides": {"ordr": {}}}},
            "/policy/overrides/ordr",
            '"ordr" is not known; write order',
        ),
        (PoolDocument, POOL | {"choice": 1}, "/choice", "1 is not known; write sticky or rotating"),
        (PoolDocument, POOL | {"term": "PT0S"}, "/term", "is 0 s; give 1 s to 366 d"),
        (ReservationDocument, DEMO | {"name": ""}, "/name", 'is ""; write one line of 1 to 100'),
        (
            ReservationDocument,
            DEMO | {"duration": "PT1S"},
            "/duration",
            "is 1 s; give 1 min or longer",
        ),
        (
            ReservationDocument,
            DEMO | {"access": {"tasks": ["5"]}},
            "/access/tasks/0",
            "5 is not the id of a task; write ID, or ID@NODE with the node that leads it",
        ),
        (
            ReservationDocument,
            DEMO | {"access": {"campaigns": ["ops"] * 101}},
            "/access/campaigns",
            "has more than 100 entries; leave some out",
        ),
        (NodePatch, {"attributes": {"In": 1}}, "/attributes/In", "is not a valid attribute name;"),
        (NodePatch, {"attributes": {"in": []}}, "/attributes/in", "must be true, false, a number"),
        (NodeAddition, {"identity": "me"}, "/identity", 'is "me"; write ed25519: and 43 '),
        (NodeAddition, {"identity": f"ed25519:{'A' * 42}B"}, "/identity", 'is "ed25519:AAA'),
        (
            TaskDocument,
            TASK | {"participants": {"pool": "a", "k": 1, "tgether": True}},
            "/participants/tgether",
            "no such field; did you mean together?",
        ),
        (TaskDocument, TASK | {"schedule": {"max_runs": 1.5}}, "/schedule/max_runs", "must be a w"),
    ],
)
def test_a_fault_says_what_is_wrong_and_what_to_do(
    kind: type[BaseModel], document: Any, pointer: str, sentence: str
) -> None:
    """The fault is one sentence at the field itself: what is there, and what is allowed."""
    found = told(kind, document)
    assert list(found) == [pointer]
    assert found[pointer].startswith(sentence)


def test_an_entry_that_is_called_like_a_mark_keeps_its_name() -> None:
    """Only faults about the name of an entry point to the entry; others point to its value."""
    found = told(CampaignDocument, CAMPAIGN | {"fairshare": {"[key]": 1, "part": 1}})
    assert list(found) == ["/fairshare/[key]"]


def _patterns(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for child in schema.values():
            yield from _patterns(child)
    elif isinstance(schema, list):
        for child in schema:
            yield from _patterns(child)


def test_every_pattern_of_the_api_has_words() -> None:
    """No user who writes a document is shown a regular expression."""
    patterns = set(_patterns(openapi_document(ROUTES, "0")["components"]["schemas"])) - {
        WRITTEN_DURATION
    }
    assert patterns, "the description has patterns at all"
    assert patterns <= PATTERNS.keys()


@pytest.mark.parametrize("value", [None, -1, 1e300, "", "é" * 9999, [], {}, [{}], {"a": {}}])
@pytest.mark.parametrize(
    ("kind", "whole"),
    [
        (CampaignDocument, CAMPAIGN),
        (PoolDocument, POOL),
        (ReservationDocument, DEMO),
        (TaskDocument, TASK),
    ],
)
def test_no_sentence_is_pydantics_own(
    kind: type[BaseModel], whole: dict[str, Any], value: object
) -> None:
    """The sentence is ours and not pydantic's, whatever is in a field."""
    for name in kind.model_fields:
        try:
            kind.model_validate(whole | {name: value}, context=FROM_OUTSIDE)
        except ValidationError as error:
            for fault in faults_of(error, kind):
                assert not fault.detail.startswith(RAW), fault
                assert len(fault.detail) < 600


@pytest.mark.parametrize("name", sorted(registry.tests()))
def test_whatever_a_spec_holds_has_a_sentence(name: str) -> None:
    """Each field of each test accepts a value of each kind or refuses it in our words."""
    test = registry.tests()[name]
    for field in test.spec_model.model_fields:
        values: list[Any] = [None, -1, 5, True, 1e300, "", "x", [], {}, [{}]]
        for value in values:
            try:
                test.spec_model.model_validate({**test.example, field: value}, context=FROM_OUTSIDE)
            except ValidationError as error:
                for fault in faults_of(error, test.spec_model):
                    assert not fault.detail.startswith(RAW), fault


def test_numbers_that_may_be_chosen_are_named() -> None:
    """A field with a choice of numbers lists them."""
    model = registry.tests()["rtt"].spec_model
    with pytest.raises(ValidationError) as refused:
        model.model_validate({"dest": "b.example", "ip_version": []})
    assert [fault.detail for fault in faults_of(refused.value, model)] == [
        "a list is not known; write 4 or 6"
    ]


def test_a_refused_secret_is_not_repeated() -> None:
    """A refused secret is not repeated, neither a text nor an entry of a map."""
    given = {"url": "https://h.example", "secret": "s3cr3t", "headers": {"X-Key": 4711}}
    with pytest.raises(ValidationError) as caught:
        HttpArchiverSpec.model_validate(given)
    said = {
        fault.pointer: fault.detail for fault in faults_of(caught.value, HttpArchiverSpec, "/spec")
    }
    assert said["/spec/secret"] == "is (secret); write 16 characters or more"
    assert not any("s3cr3t" in each or "4711" in each for each in said.values())
    assert len(said) == 2
