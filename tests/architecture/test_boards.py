"""The boards for Grafana have the form of its dashboards.

No registry has a Grafana to load them, so this is what its schema of dashboards
(``kinds/dashboard/dashboard_kind.cue``, version 39) says of the fields that they use.
"""

from __future__ import annotations

import json
import re
from itertools import combinations, count
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tests.architecture.sources import REPOSITORY

BOARDS = sorted((REPOSITORY / "deploy/grafana").glob("*.json"))
COLUMNS = 24
USED = re.compile(r"\$(?!__)\{?(\w+)")


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, alias_generator=to_camel, populate_by_name=True
    )


class Source(_Strict):
    """A reference to a data source."""

    type: Literal["prometheus"]
    uid: Literal["${datasource}"]


class Place(_Strict):
    """The place of a panel in the grid."""

    x: int = Field(ge=0, lt=COLUMNS)
    y: int = Field(ge=0)
    w: int = Field(gt=0, le=COLUMNS)
    h: int = Field(gt=0)


class Target(_Strict):
    """A query of Prometheus."""

    datasource: Source
    expr: str = Field(min_length=1)
    legend_format: str
    ref_id: str = Field(pattern=r"^[A-Z]$")
    format: Literal["time_series", "table"]
    instant: bool = False
    range: bool = True


class Step(_Strict):
    """A threshold; the first has no value."""

    color: str
    value: float | None


class Thresholds(_Strict):
    """The thresholds of a field."""

    mode: Literal["absolute", "percentage"]
    steps: list[Step] = Field(min_length=1)


class Mapping(_Strict):
    """A text for a value."""

    type: Literal["value", "range", "regex", "special"]
    options: dict[str, dict[str, str]]


class Defaults(_Strict):
    """The way in which values are shown."""

    unit: str
    mappings: list[Mapping] = []
    thresholds: Thresholds | None = None
    min: float | None = None
    max: float | None = None
    custom: dict[str, Any] = {}
    color: dict[str, Any] | None = None
    decimals: float | None = None
    no_value: str | None = None


class Fields(_Strict):
    """The configuration of the fields of a panel."""

    defaults: Defaults
    overrides: list[dict[str, Any]]


class Transformation(_Strict):
    """A change of what was answered."""

    id: str
    options: dict[str, Any]


class Panel(_Strict):
    """A panel."""

    id: int = Field(gt=0)
    type: Literal["stat", "timeseries", "table"]
    title: str = Field(min_length=1)
    description: str
    datasource: Source
    targets: list[Target] = Field(min_length=1)
    grid_pos: Place
    field_config: Fields
    options: dict[str, Any]
    transformations: list[Transformation] = []


class Variable(_Strict):
    """A choice at the top of a board."""

    name: str = Field(pattern=r"^\w+$")
    label: str
    type: Literal["datasource", "query"]
    query: str | dict[str, str]
    current: dict[str, Any]
    datasource: Source | None = None
    definition: str | None = None
    refresh: Literal[0, 1, 2] = 0
    include_all: bool = False
    multi: bool = False
    all_value: str | None = None
    sort: int = Field(0, ge=0, le=8)


class Variables(_Strict):
    """All choices of a board."""

    list: list[Variable]


class Span(BaseModel):
    """The time that is shown at first."""

    since: str = Field(alias="from")
    to: str


class Board(_Strict):
    """A board."""

    uid: str = Field(min_length=1, max_length=40)
    title: str = Field(min_length=1)
    description: str
    tags: list[str]
    timezone: Literal["browser", "utc"]
    schema_version: Literal[39]
    version: int
    editable: bool
    refresh: str = Field(pattern=r"^\d+[smhd]$")
    time: Span
    annotations: dict[Literal["list"], list[Any]]
    links: list[dict[str, Any]]
    templating: Variables
    panels: list[Panel] = Field(min_length=1)


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_a_board_has_the_form_of_a_dashboard(file: Path) -> None:
    """Its fields are known ones, its panels do not overlap, and its variables are defined."""
    board = Board.model_validate(json.loads(file.read_text()))
    assert [panel.id for panel in board.panels] == sorted({panel.id for panel in board.panels})
    for panel in board.panels:
        letters = [chr(ord("A") + number) for number, _ in zip(count(), panel.targets)]
        assert [target.ref_id for target in panel.targets] == letters
        assert panel.grid_pos.x + panel.grid_pos.w <= COLUMNS
    for one, other in combinations([panel.grid_pos for panel in board.panels], 2):
        beside = one.x + one.w <= other.x or other.x + other.w <= one.x
        assert beside or one.y + one.h <= other.y or other.y + other.h <= one.y
    defined = {each.name for each in board.templating.list}
    assert set(USED.findall(file.read_text())) == defined


def test_boards_are_told_apart() -> None:
    """No two boards have one identity, because the later one would replace the earlier."""
    assert len({json.loads(file.read_text())["uid"] for file in BOARDS}) == len(BOARDS) == 5
