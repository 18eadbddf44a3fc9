"""The retry schedule of deliveries, the redaction of secrets, and transforms."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.execution import jmespath_search, transforming
from node.execution.tool_runner import ToolRunner
from node.execution.transforming import TransformResult
from node.model import archiving, times
from node.results.transforms import Transforms
from node.runtime.settings import Settings

WITH_JQ = pytest.mark.needs("jq")

RUN, ARCHIVE = UUID(int=1), UUID(int=2)


@pytest.fixture(name="transforms")
async def _transforms() -> AsyncIterator[Transforms]:
    """Return the transforms of a node."""
    runner = ToolRunner(Settings())
    yield Transforms(runner)
    await runner.close()


@given(st.integers(1, 10_000), st.integers(0, 3 * times.DAY), st.integers(0, 10**15))
def test_the_next_try_is_later_and_within_an_hour(attempts: int, after: int, asked: int) -> None:
    """For a day the next try is within an hour, however long a pause the destination requests."""
    found = archiving.next_try(attempts, 0, after, asked)
    if after >= times.DAY:
        assert found is None
    else:
        assert found is not None
        assert times.MINUTE <= found - after <= times.HOUR


def test_the_first_pauses_are_short() -> None:
    """The pauses are 1, 5, and 30 minutes, then an hour each."""
    pauses = [archiving.next_try(attempts, 0, 0) for attempts in range(1, 6)]
    assert pauses == [minutes * times.MINUTE for minutes in (1, 5, 30, 60, 60)]


def test_keys_differ_by_run_archive_and_edition() -> None:
    """The key of the first outcome is run and archive; later ones include the edition."""
    assert archiving.key_of(RUN, ARCHIVE, 1) == f"{RUN}/{ARCHIVE}"
    assert archiving.key_of(RUN, ARCHIVE, 2) == f"{RUN}/{ARCHIVE}/2"


@pytest.mark.parametrize(
    ("transform", "word"),
    [
        ({"jmespath": "a."}, "Parse error at column 2"),
        ({"jmespath": "[" * 3000}, ""),
        pytest.param(
            {"jq": ".a |"},
            "syntax error at its end: something is left open, or closed twice",
            marks=WITH_JQ,
        ),
        pytest.param({"jq": ".a |\n. ]"}, "syntax error at its end", marks=WITH_JQ),
        pytest.param({"jq": '"abc'}, "syntax error at its end", marks=WITH_JQ),
        pytest.param({"jq": "nosuch"}, "nosuch/0 is not defined", marks=WITH_JQ),
        pytest.param(
            {"jq": ".\n| | .b\n"}, "syntax error, unexpected '|' in line 2", marks=WITH_JQ
        ),
        pytest.param({"jq": 'import "a" as a; .'}, "syntax error", marks=WITH_JQ),
        pytest.param({"jq": "] | env | ["}, None, marks=WITH_JQ),
    ],
)
@pytest.mark.mostly_nightly
async def test_a_transform_that_does_not_compile(
    transforms: Transforms, transform: dict[str, str], word: str | None
) -> None:
    """A transform that does not compile is refused with the error; an unusual one is not."""
    fault = await transforms.fault_of(transform)
    assert (fault is None) == (word is None)
    assert (word or "") in (fault or "")


@pytest.mark.needs("jq")
@pytest.mark.parametrize("program", ["until(false; .)", "def f: f; f", "[range(1e9)]"])
async def test_a_program_is_checked_without_running_it(
    transforms: Transforms, program: str
) -> None:
    """A program that would not end is accepted at once, as it is compiled only."""
    async with asyncio.timeout(transforming.TIMEOUT_S / 2):
        assert await transforms.fault_of({"jq": program}) is None


@pytest.mark.needs("jq")
async def test_each_document_gets_its_own_answer(transforms: Transforms) -> None:
    """A document that fails does not affect the others, in jq as in JMESPath."""
    documents = [b'{"a": 1}', b'{"a": "x"}', b'{"a": 2}']
    by_jq = await transforms.apply({"jq": ".a + 1 # more"}, documents)
    by_jmespath = await transforms.apply({"jmespath": "sum([a])"}, documents)
    for found in (by_jq, by_jmespath):
        assert isinstance(found[1], TransformResult)
        assert found[1].error
    assert (by_jq[0], by_jq[2]) == (b"2", b"3")
    assert (by_jmespath[0], by_jmespath[2]) == (b"1", b"2")


@pytest.mark.needs("jq")
async def test_a_program_that_reads_on_spoils_nobody_elses(transforms: Transforms) -> None:
    """If a program reads other documents too, each document is transformed alone."""
    found = await transforms.apply({"jq": "[., inputs]"}, [b"1", b"2"])
    assert found == [b"[1]", b"[2]"]


@pytest.mark.needs("jq")
@pytest.mark.nightly
async def test_a_program_without_end_is_ended(
    transforms: Transforms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that exceeds its time or memory is killed, and the reason says so."""
    monkeypatch.setattr(transforming, "TIMEOUT_S", 1.0)
    [endless] = await transforms.apply({"jq": "def f: f; f"}, [b"1"])
    [greedy] = await transforms.apply({"jq": "[range(1e9)]"}, [b"1"])
    assert isinstance(endless, TransformResult)
    assert isinstance(greedy, TransformResult)
    assert endless.error
    assert greedy.error


async def test_an_expression_that_blows_up_is_stopped(
    transforms: Transforms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short expression whose result would fill the memory is stopped; the node needs none."""
    monkeypatch.setattr(transforming, "MEMORY_MAX", 160 * 2**20)
    doubled = " | ".join(["join('', [@, @])"] * 25)
    bombs = {
        "@" + " | [@, @]" * 40: "more than 8000000 bytes",
        f"to_string(@) | {doubled}": "it needs more than 160 MiB of memory",
    }
    text = b'"a text of forty characters, more or less"'
    kept = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for bomb, reason in bombs.items():
        assert await transforms.fault_of({"jmespath": bomb}) is None
        [blown] = await transforms.apply({"jmespath": bomb}, [text])
        assert isinstance(blown, TransformResult)
        assert reason in str(blown.error)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - kept < 40_000


@pytest.mark.nightly
async def test_a_slow_expression_is_stopped(
    transforms: Transforms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that takes too long fails, and spoils no other."""
    monkeypatch.setattr(jmespath_search, "EACH_S", 0.2)
    documents = [b"[1]", orjson.dumps([1] * 100_000), b"[-2]"]
    transform = {"jmespath": "@" + " | [*].abs(@)" * 100}
    first, slow, last = await transforms.apply(transform, documents)
    assert (first, last) == (b"[1]", b"[2]")
    assert isinstance(slow, TransformResult)
    assert slow.error == "it needs more than 0.2 s for one document"
