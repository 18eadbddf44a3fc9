"""Checks that a plugin keeps its contract, for ``parley plugin test`` and our own tests.

Pure: nothing is started. Each check is a sentence and, where it does not hold, the fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from node.model.classes import SchedulingClass
from node.model.errors import ToolOutputError
from node.model.secrets import REDACTED, redacted_spec, secret_fields
from node.model.times import DAY
from node.model.wire.fields import Document
from node.plugins.contracts import (
    Archiver,
    Metric,
    Output,
    Part,
    PartContext,
    PartModelling,
    Party,
    Result,
    StreamingTest,
    StreamingTool,
    Test,
    Tool,
)
from node.plugins.figures import faults_of, usable_metrics
from node.plugins.reading import BYTES_MAX
from node.plugins.sample_results import results_of

STARTS = 1_800_000_000_000_000
_PORT = 5301
_ADDRESS = "192.0.2.{}"

_NONSENSE: tuple[Output, ...] = (
    Output(0, b"", b""),
    Output(1, b"", b"it: no route to host"),
    Output(-15, b"", b"", "end"),
    Output(0, b"\xff\xfe\x00", b"\xff"),
    Output(0, b"[" * 100_000, b""),
    Output(0, b" " * (BYTES_MAX + 1), b""),
    *(Output(0, text, b"") for text in (b"{}", b"null", b"[NaN]", b'{"error": "x"}', b"-1\n")),
)
"""Outputs of programs when something is wrong."""

UNTESTED_PREFERENCE = -100
"""The preference of a tool whose program was never run: it is used only if named in a task."""

_SECRET_NAME = re.compile(r"(^|_)(password|passphrase|secret|token|api_?key)$")

_METRIC_NAME = re.compile(r"[a-z][a-z0-9_]*")

_PARTS: tuple[tuple[Part, ...], ...] = (
    (),
    (Part(0, "a", None, "the disk is full"), Part(1, "b", None)),
    (Part(0, "a", {"received": -1}), Part(1, "b", {"sent": "x"}), Part(7, "c", {})),
)
"""Parts that participants may send instead of results."""


@dataclass(frozen=True)
class ConformityCheck:
    """A requirement, and its violation; ``fault`` is None where it holds."""

    sentence: str
    fault: str | None = None


Look = Callable[[], Iterator[str]]
"""A check that yields each fault as a sentence."""


def checks_of_test(test: Test) -> list[ConformityCheck]:
    """Return all checks of a test that need no tool."""
    looks: list[tuple[str, Look]] = [
        ("its example is a spec", lambda: _example_faults(test)),
        ("every field of spec and result has a description", lambda: _description_faults(test)),
        ("a spec is the same after it was stored", lambda: _storing_faults(test)),
        ("unknown fields are refused", lambda: _refusal_faults(test)),
        ("participants, class and needs follow from the spec", lambda: _derivation_faults(test)),
        (
            "parts that are missing or nonsense make a failed run with a reason",
            lambda: _merging_faults(test),
        ),
    ]
    if likely := results_of(test.result_model):
        sentence = "results that its model allows have a summary in one line, and figures"
        looks.append((sentence, lambda: _display_faults(test.summary, test.metrics, likely)))
    if isinstance(test, StreamingTest) and (intervals := results_of(test.interval_model)):
        summary, figures = test.interval_summary, test.interval_metrics
        looks.append(
            ("so have its intervals", lambda: _display_faults(summary, figures, intervals))
        )
    return [_outcome_of_look(sentence, look) for sentence, look in looks]


def checks_of_result(test: Test, result: Result) -> list[ConformityCheck]:
    """Return the checks of a measured result."""
    looks: list[tuple[str, Look]] = [
        ("the result matches its model", lambda: _part_model_faults(test, result)),
        (
            "it has a summary in one line, and figures",
            lambda: _display_faults(test.summary, test.metrics, [result]),
        ),
    ]
    return [_outcome_of_look(sentence, look) for sentence, look in looks]


def checks_of_tool(tool: Tool, tests: Mapping[str, Test]) -> list[ConformityCheck]:
    """Return all checks of a tool that need not start it, for each test that it measures."""
    sentence = "it names its program, and the versions it was tested with"
    checks = [_outcome_of_look(sentence, lambda: _requirement_faults(tool))]
    for name in tool.tests:
        test = tests.get(name)
        if test is None:
            checks.append(
                ConformityCheck(f"{name} is an installed test", f"there is no test {name!r}")
            )
            continue
        looks: list[tuple[str, Look]] = [
            (
                f"{name}: it books time, and makes a command for each participant",
                _command_faults(tool, test),
            ),
            (
                f"{name}: output without a result is refused with a reason",
                _reading_faults(tool, test),
            ),
            (
                f"{name}: test and tool agree on whether they use intervals",
                _streaming_faults(tool, test),
            ),
        ]
        checks += [_outcome_of_look(sentence, look) for sentence, look in looks]
    return checks


def checks_of_archiver(
    archiver: Archiver, spec_document: Mapping[str, Any] | None = None
) -> list[ConformityCheck]:
    """Return all checks of an archiver that need no connection; more if a spec is passed."""
    looks: list[tuple[str, Look]] = [
        ("it has a title, and says whether order matters", lambda: _title_faults(archiver)),
        ("every field has a description", lambda: _field_faults(archiver.spec_model)),
        ("unknown fields are refused", lambda: _openness_faults(archiver)),
        (
            "fields with the name of a secret are marked as secret",
            lambda: _secrecy_faults(archiver),
        ),
    ]
    if spec_document is not None:
        sentence = "label, limits and the stored form follow from the spec"
        looks.append((sentence, _spec_faults(archiver, spec_document)))
    return [_outcome_of_look(sentence, look) for sentence, look in looks]


def example_part(test: Test, tool: Tool, participant: int = 0, spec: Any = None) -> PartContext:
    """Return one part of a run of ``spec``, or of the test's example, with documentation hosts."""
    spec = test.spec_model.model_validate(dict(test.example)) if spec is None else spec
    names = [name or "a.example" for name in test.participants(spec)]
    addresses = {host: _ADDRESS.format(200 + at) for at, host in enumerate(test.hosts(spec))}
    addresses |= {name: _ADDRESS.format(at + 1) for at, name in enumerate(names)}
    parties = tuple(
        Party(
            name,
            addresses[name],
            {"port": _PORT + at} if tool.needs_port(spec, at) else {},
        )
        for at, name in enumerate(names)
    )
    ends = STARTS + tool.duration(spec)
    return PartContext(spec, participant, parties, STARTS, ends, addresses)


def _outcome_of_look(sentence: str, look: Look) -> ConformityCheck:
    try:
        faults = list(look())
    except Exception as error:  # noqa: BLE001 - a third-party plugin may raise anything
        faults = [f"it raised {type(error).__name__}: {error}"]
    return ConformityCheck(sentence, "; ".join(faults) or None)


def _example_faults(test: Test) -> Iterator[str]:
    test.spec_model.model_validate(dict(test.example))
    if not test.title.strip():
        yield "its title is empty"


def _description_faults(test: Test) -> Iterator[str]:
    streamed = (test.interval_model,) if isinstance(test, StreamingTest) else ()
    for model in (test.spec_model, test.result_model, *streamed):
        yield from _field_faults(model)


def _field_faults(model: type[Document]) -> Iterator[str]:
    schema = model.model_json_schema()
    kinds = schema.get("$defs", {})
    for part in (schema, *kinds.values()):
        for field, described in part.get("properties", {}).items():
            kind = kinds.get(described.get("$ref", "").rpartition("/")[2], {})
            if not (described | kind).get("description"):
                yield f"{part.get('title', model.__name__)}.{field} has no description"


def _storing_faults(test: Test) -> Iterator[str]:
    spec = test.spec_model.model_validate(dict(test.example))
    document = json.loads(json.dumps(spec.model_dump(mode="json")))
    if test.spec_model.model_validate(document) != spec:
        yield f"{document} is read as another spec"


def _refusal_faults(test: Test) -> Iterator[str]:
    try:
        test.spec_model.model_validate({**test.example, "no-such-field": 1})
    except ValueError:
        return
    yield "a field 'no-such-field' was accepted; derive the models from Document"


def _derivation_faults(test: Test) -> Iterator[str]:
    spec = test.spec_model.model_validate(dict(test.example))
    if not test.participants(spec):
        yield "it has no participants; None stands for the lead itself"
    if not isinstance(test.scheduling_class(spec), SchedulingClass):
        yield f"its class is {test.scheduling_class(spec)!r}, not a SchedulingClass"
    if unnamed := sorted(set(test.needs(spec)) - set(test.resources)):
        yield f"it needs {', '.join(unnamed)}, which its resources do not name"
    for mbps in (None, 1000):
        moved: object = test.expected_bytes(spec, mbps)
        if moved is not None and (not isinstance(moved, int) or moved < 0):
            yield f"it expects to move {moved!r}; give a whole number of bytes, or None"


def _merging_faults(test: Test) -> Iterator[str]:
    spec = test.spec_model.model_validate(dict(test.example))
    for parts in _PARTS:
        merged = test.merge(spec, parts)
        if merged.succeeded:
            yield f"{parts!r} made a run that succeeded"
    if "the disk is full" not in str(test.merge(spec, _PARTS[1]).reason):
        yield "the reason of a part is not in the reason of the run"


def _title_faults(archiver: Archiver) -> Iterator[str]:
    if not archiver.title.strip():
        yield "its title is empty"
    if not isinstance(archiver.ordered, bool):
        yield f"ordered is {archiver.ordered!r}, neither True nor False"


def _openness_faults(archiver: Archiver) -> Iterator[str]:
    if archiver.spec_model.model_json_schema().get("additionalProperties") is not False:
        yield "an unknown field is accepted; derive the model from Document"


def _secrecy_faults(archiver: Archiver) -> Iterator[str]:
    marked = secret_fields(archiver.spec_model)
    for name in archiver.spec_model.model_fields:
        if name not in marked and _SECRET_NAME.search(name):
            yield f"{name} is shown to everybody; mark it with SECRET of node.plugins.fields"


def _spec_faults(archiver: Archiver, spec_document: Mapping[str, Any]) -> Look:
    def look() -> Iterator[str]:
        spec = archiver.spec_model.model_validate(dict(spec_document))
        document = json.loads(json.dumps(spec.model_dump(mode="json")))
        if archiver.spec_model.model_validate(document) != spec:
            yield f"{redacted_spec(archiver.spec_model, document)} is read as another spec"
        limits = archiver.batches(spec)
        if min(limits.items, limits.size, limits.timeout) < 1:
            yield f"its limits are {limits!r}; each must be at least 1 (document, byte, µs)"
        label = archiver.label(spec)
        if not label.strip() or "\n" in label:
            yield f"its label is {label!r}, not a few words on one line"
        shown = redacted_spec(archiver.spec_model, document)
        for name in secret_fields(archiver.spec_model):
            values = (
                document[name].values() if isinstance(document[name], dict) else [document[name]]
            )
            if any(isinstance(value, str) and value and value in label for value in values):
                yield f"its label contains the secret {name}"
            if document[name] and REDACTED not in str(shown[name]):
                yield f"{name} is secret, but neither a text nor a map"

    return look


def _requirement_faults(tool: Tool) -> Iterator[str]:
    requirement = tool.requirement
    if requirement is None:
        return
    if not requirement.program or not requirement.package:
        yield "its requirement lacks the program, or the package that contains it"
    if requirement.version_argv[:1] != (requirement.program,):
        yield f"version_argv does not ask {requirement.program} for its version"
    if re.compile(requirement.version_pattern).groups != 1:
        yield "version_pattern does not have exactly one group"
    if not tool.tried and tool.preference > UNTESTED_PREFERENCE:
        yield f"tried names no version, and its preference is above {UNTESTED_PREFERENCE}"


def _command_faults(tool: Tool, test: Test) -> Look:
    def look() -> Iterator[str]:
        part = example_part(test, tool)
        unable = tool.can(part.spec)
        if unable is not None and not str(unable).startswith(tool.name):
            yield f"why it cannot measure is {unable!r}, which does not begin with its name"
        if not 0 < part.ends - part.starts <= DAY:
            yield f"it books {part.ends - part.starts} µs, not more than 0 and at most a day"
        for participant in range(len(part.parties)):
            command = tool.command(example_part(test, tool, participant))
            if not command.argv or not all(isinstance(word, str) for word in command.argv):
                yield f"the argv of participant {participant} is {command.argv!r}"

    return look


def _reading_faults(tool: Tool, test: Test) -> Look:
    def look() -> Iterator[str]:
        part = example_part(test, tool)
        for printed in _NONSENSE:
            try:
                result = tool.read(part, printed)
            except ToolOutputError as error:
                if not error.detail.strip():
                    yield f"{printed.stdout[:20]!r} is refused without a reason"
                continue
            yield from _result_faults(test, part, result)

    return look


def _streaming_faults(tool: Tool, test: Test) -> Look:
    def look() -> Iterator[str]:
        streams = tool.command(part := example_part(test, tool)).streams
        if not isinstance(test, StreamingTest) or not isinstance(tool, StreamingTool):
            if streams or isinstance(test, StreamingTest):
                yield "only one of test and tool uses intervals"
            return
        rhythm = test.rhythm(part.spec)
        if (
            not streams
            or rhythm.count < 1
            or rhythm.length * rhythm.count > part.ends - part.starts
        ):
            yield f"its command says streams={streams}, and its run has no time for {rhythm}"
        for record in (b"", b"\xff", b"[" * 50_000, b"null", b"{}"):
            try:
                tool.read_interval(part, record)
            except ToolOutputError:
                continue
            yield f"the record {record[:20]!r} is read as an interval"

    return look


def _result_faults(test: Test, part: PartContext, result: dict[str, Any]) -> Iterator[str]:
    """Check that a parsed result is JSON, and fit for merging, summaries and series."""
    json.dumps(result, allow_nan=False)
    if isinstance(test, PartModelling):
        test.part_models[min(part.participant, len(test.part_models) - 1)].model_validate(result)
    parts = [Part(at, party.name, result) for at, party in enumerate(part.parties)]
    merged = test.merge(part.spec, parts)
    if merged.result is None:
        return
    yield from _display_faults(test.summary, test.metrics, [merged.result])


def _part_model_faults(test: Test, result: Result) -> Iterator[str]:
    json.dumps(result, allow_nan=False)
    test.result_model.model_validate(result)
    yield from ()


def _display_faults(
    summary: Callable[[Result], object],
    metrics: Callable[[Result], Iterable[Metric]],
    results: Sequence[Result],
) -> Iterator[str]:
    """Yield the faults in summary and metrics of all results, each fault once."""
    faults = (
        fault
        for result in results
        for fault in _display_faults_of_one(summary(result), metrics(result))
    )
    yield from dict.fromkeys(faults)


def _display_faults_of_one(summary: object, metrics: Iterable[Metric]) -> Iterator[str]:
    if not isinstance(summary, str) or not summary.strip() or "\n" in summary:
        yield f"its summary is {summary!r}, not one line"
    figures = tuple(metrics)
    yield from (f"it {fault}" for fault in faults_of(figures))
    for figure in usable_metrics(figures):
        if not _METRIC_NAME.fullmatch(figure.name):
            yield f"a figure is called {figure.name!r}: a-z, 0-9 and _ only, such as rtt_median_ms"
        if not figure.unit.strip():
            yield f"{figure.name!r} has no unit; a fraction or plain number has the unit 1"
