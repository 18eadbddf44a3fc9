"""The states of tasks, exchanges, and negotiations are those of the schema."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import pytest

from node.model.exchangestate import ExchangeState, NegotiationState
from node.model.taskstate import TaskState

SCHEMA = (Path(__file__).parents[2] / "schema.sql").read_text("utf-8")


@pytest.mark.parametrize(
    ("states", "name"),
    [
        (TaskState, "task_state"),
        (ExchangeState, "exchange_state"),
        (NegotiationState, "negotiation_state"),
    ],
)
def test_the_states_are_those_of_the_schema(states: type[StrEnum], name: str) -> None:
    """The SQL enum has the same states in the same order."""
    definition = re.search(rf"CREATE TYPE {name} AS ENUM \((.*?)\);", SCHEMA, re.DOTALL)
    assert definition is not None
    uncommented = re.sub(r"--.*", "", definition[1])
    assert re.findall(r"'([a-z-]+)'", uncommented) == list(states)
