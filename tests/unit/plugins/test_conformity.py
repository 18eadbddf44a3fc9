"""The conformity checks find the faults of plugins."""

# The plugins here are broken on purpose; they have the contract's parameters and do not use them.
# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from node.model.errors import ToolOutputError
from node.plugins import registry
from node.plugins.archivers.http import HttpArchiver, HttpArchiverSpec
from node.plugins.conformity import (
    ConformityCheck,
    checks_of_archiver,
    checks_of_result,
    checks_of_test,
    checks_of_tool,
)
from node.plugins.contracts import (
    Batches,
    Command,
    Merged,
    Metric,
    Output,
    Part,
    PartContext,
    Requirement,
    Result,
)
from node.plugins.contracts import Test as TestContract
from node.plugins.contracts import Tool as ToolContract
from node.plugins.discovery import contract_violation
from node.plugins.sample_results import results_of
from node.plugins.tests.idle import IdleSpec, IdleTest
from node.plugins.tools.sleep import SleepTool
from node.results.archivers import archivers


def faults(checks: Sequence[ConformityCheck]) -> str:
    """Return all faults in one text."""
    return "\n".join(f"{check.sentence}: {check.fault}" for check in checks if check.fault)


class _HappyMerge(IdleTest):
    def merge(self, spec: IdleSpec, parts: Sequence[Part]) -> Merged:
        return Merged({"participants": len(parts), "duration_ms": 1.0})


class _RaisingMerge(IdleTest):
    def merge(self, spec: IdleSpec, parts: Sequence[Part]) -> Merged:
        raise KeyError(parts[0].name)


class _NoExample(IdleTest):
    example = {"duration": "soon"}  # noqa: RUF012 - wrong on purpose


class _Dumb(IdleTest):
    def summary(self, result: Result) -> str:
        return str(result["no such figure"])


class _Numberless(IdleTest):
    def metrics(self, result: Result) -> tuple[Metric, ...]:
        return (Metric("idle_ms", float("nan"), "ms"),)


class _Unnamed(IdleTest):
    def metrics(self, result: Result) -> tuple[Metric, ...]:
        return (Metric("Idle ms!", 1.0, ""),)


@pytest.mark.parametrize(
    ("test", "found"),
    [
        (_Dumb(), "in one line, and figures: it raised KeyError: 'no such figure'"),
        (_Numberless(), "it gave 'idle_ms' the value nan, which is not a number"),
        (_Unnamed(), "a figure is called 'Idle ms!': a-z, 0-9 and _ only"),
        (_Unnamed(), "'Idle ms!' has no unit"),
        (_HappyMerge(), "made a run that succeeded"),
        (_RaisingMerge(), "it raised IndexError"),
        (_NoExample(), "its example is a spec: it raised ValidationError"),
    ],
    ids=["dumb", "numberless", "unnamed", "unitless", "happy", "raising", "example"],
)
def test_faults_of_a_test_are_found(test: IdleTest, found: str) -> None:
    """Each violation of a test's contract is reported."""
    assert found in faults(checks_of_test(test))


def test_faults_of_a_measured_result_are_found() -> None:
    """Faults that only a real result shows are reported: its model, its summary, its figures."""
    measured = {"participants": 1, "duration_ms": 5.0}
    assert faults(checks_of_result(IdleTest(), measured)) == ""
    assert "matches its model: it raised ValidationError" in faults(
        checks_of_result(IdleTest(), {"participants": "x"})
    )
    assert "no such figure" in faults(checks_of_result(_Dumb(), measured))


class _Kind(StrEnum):
    FIRST = "first"


class _Inner(BaseModel):
    share: float = Field(gt=0, lt=0.5)
    kinds: tuple[_Kind, ...] = Field(min_length=2)


class _Outer(BaseModel):
    inner: _Inner
    many: dict[str, _Inner] = {}
    pair: tuple[int, str] = (0, "")
    perhaps: int | None = Field(default=None, ge=7, le=9, strict=True)
    word: Literal["only"]
    text: str = Field(min_length=3)


class _Ruled(BaseModel):
    even: int

    @field_validator("even")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("is odd")
        return value


class _Odd(BaseModel):
    check: Callable[[], int]


def test_results_are_made_up_as_their_model_allows() -> None:
    """There is a full sample and a minimal one, or none where rules forbid them."""
    inner = {"share": 0.25, "kinds": ["first", "first"]}
    needed = {"inner": inner, "word": "only", "text": "xxx"}
    assert results_of(_Outer) == [
        {**needed, "many": {"x": inner}, "pair": [1, "x"], "perhaps": 7},
        {**needed, "many": {}, "pair": [0, ""], "perhaps": None},
    ]
    assert results_of(_Ruled) == results_of(_Odd) == []


class _Trusting(SleepTool):
    def read(self, part: PartContext, output: Output) -> Result:
        return {"slept_ms": float(output.stdout or "nan")}


class _Vague(SleepTool):
    def can(self, spec: IdleSpec) -> str | None:
        return "cannot"


class _Shouting(SleepTool):
    def command(self, part: PartContext) -> Command:
        return Command(argv=("sleep", 5))  # type: ignore[arg-type]


class _Endless(SleepTool):
    def duration(self, spec: IdleSpec) -> int:
        return 0


class _Untried(SleepTool):
    requirement = Requirement("sleep", "coreutils", ("nap", "--version"), "no group")
    tried = ()


class _Lost(SleepTool):
    tests = ("nothing",)


@pytest.mark.parametrize(
    ("tool", "found"),
    [
        (_Vague(), "which does not begin with its name"),
        (_Trusting(), "refused with a reason: it raised ValueError"),
        (_Shouting(), "the argv of participant 0 is ('sleep', 5)"),
        (_Endless(), "it books 0 µs"),
        (_Untried(), "does not ask sleep for its version; version_pattern does not have"),
        (_Lost(), "there is no test 'nothing'"),
    ],
    ids=["vague", "trusting", "shouting", "endless", "untried", "lost"],
)
def test_faults_of_a_tool_are_found(tool: SleepTool, found: str) -> None:
    """Each violation of a tool's contract is reported."""
    assert found in faults(checks_of_tool(tool, registry.tests()))


def test_a_refusal_without_a_reason_is_found() -> None:
    """An error without a reason is reported."""

    class Mute(SleepTool):
        def read(self, part: PartContext, output: Output) -> Result:
            raise ToolOutputError(" ")

    assert "refused without a reason" in faults(checks_of_tool(Mute(), registry.tests()))


class _Talkative(HttpArchiver):
    def label(self, spec: HttpArchiverSpec) -> str:
        return f"{spec.url} {spec.secret}"


class _Stuck(HttpArchiver):
    def batches(self, spec: HttpArchiverSpec) -> Batches:
        return Batches(0, 1, 1)


class _OpenSpec(BaseModel):
    api_key: str = Field("x", description="Shown to everybody.")
    place: str = "here"


class _Careless(HttpArchiver):
    title = " "
    spec_model = _OpenSpec  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("archiver", "found"),
    [
        (_Talkative(), "its label contains the secret secret"),
        (_Stuck(), "each must be at least 1 (document, byte, µs)"),
        (_Careless(), "its title is empty"),
        (_Careless(), "_OpenSpec.place has no description"),
        (_Careless(), "an unknown field is accepted"),
        (_Careless(), "api_key is shown to everybody"),
    ],
    ids=["talkative", "stuck", "title", "undescribed", "open", "shown"],
)
def test_faults_of_an_archiver_are_found(archiver: HttpArchiver, found: str) -> None:
    """Each violation of an archiver's contract is reported."""
    spec = {"url": "http://h.example/in", "secret": "a secret of some length"}
    assert found in faults(checks_of_archiver(archiver, spec))


@pytest.mark.parametrize("name", sorted(archivers()))
def test_archivers_keep_the_contract(name: str) -> None:
    """Every archiver of ours passes the checks of ``parley plugin test``."""
    assert faults(checks_of_archiver(archivers()[name])) == ""


@pytest.mark.parametrize(
    ("contract", "name", "plugin", "found"),
    [
        (TestContract, "idle", IdleTest(), None),
        (ToolContract, "sleep", SleepTool(), None),
        (TestContract, "idle", IdleTest, "it is the class IdleTest"),
        (TestContract, "Idle!", IdleTest(), "characters other than"),
        (TestContract, "rest", IdleTest(), "it calls itself 'idle', its entry point 'rest'"),
        (TestContract, "sleep", SleepTool(), "it has no example, expected_bytes, hosts"),
        (ToolContract, "x", object(), "it has no can, command, duration"),
    ],
)
def test_invalid_plugins_are_reported(
    contract: type[Any], name: str, plugin: object, found: str | None
) -> None:
    """An entry point that leads to another object is reported with what it lacks."""
    violation = contract_violation(contract, name, plugin)
    assert violation is None if found is None else found in str(violation)
