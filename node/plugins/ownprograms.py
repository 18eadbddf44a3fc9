"""Starting our own measuring programs, those in ``tools/programs/``. Pure."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

from node.model.errors import ToolOutputError
from node.model.targets import TargetRules
from node.model.wire.fields import Document
from node.plugins.contracts import Command, Output, Result
from node.plugins.figures import milliseconds
from node.plugins.reading import Model, document_of

MICROSECOND_NS = 1000

_PROGRAMS = Path(__file__).resolve().parent / "tools" / "programs"


def checking_program(
    name: str,
    arguments: Mapping[str, object],
    rules: TargetRules | None,
    private: Mapping[str, object] | None = None,
    *,
    libraries: bool = False,
) -> Command:
    """Return the command of a program of ours that measures a target, as :func:`own_program`.

    The rules for its targets, which name this host's addresses, and what else is ``private`` are
    read from standard input, as one JSON object: lists of processes and results show the argv.
    """
    secret = dict(private or {})
    if rules is not None:
        secret["rules"] = rules.as_document()
    stdin = json.dumps(secret).encode() if secret else b""
    return own_program(
        name, {**arguments, "private": bool(secret)}, libraries=libraries, stdin=stdin
    )


def own_program(
    name: str, arguments: Mapping[str, object], *, libraries: bool = False, stdin: bytes = b""
) -> Command:
    """Return the command of a program of ours; its arguments are one JSON object.

    The program itself waits for its instant. It runs isolated, and without site packages unless it
    needs ``libraries``: a bare Python starts in some 40 ms, whatever is installed. ``stdin`` is for
    what must not be visible in a list of processes, or in a result.
    """
    isolated = ("-I",) if libraries else ("-I", "-S")
    document = json.dumps(arguments, separators=(",", ":"))
    program = str(_PROGRAMS / name)
    return Command((sys.executable, *isolated, program, document), waits_itself=True, stdin=stdin)


class _Failed(Document):
    """The output of a program of ours that could not measure."""

    error: str


def told_failure(output: Output, program: str) -> str:
    """Return why a program of ours could not measure, as it says itself.

    :raises ToolOutputError: it says nothing like that.
    """
    return document_of(output, program, _Failed).error


def measured(output: Output, program: str, model: type[Model], family: str = "") -> Model:
    """Return the output of a program of ours, unless it says that it could not measure.

    :raises ToolOutputError: it says so, for which the programs of a ``family`` have one name; or
        it printed something else.
    """
    if output.exit_code != 0:
        named = family or program
        raise ToolOutputError(f"{named}: {told_failure(output, named)}")
    return document_of(output, program, model)


def result_of(model: type[Document], printed: BaseModel, **others: object) -> Result:
    """Return a result with the fields that a program of ours printed under the same names.

    Times it prints in nanoseconds, under names that end in ``_ns``. ``others`` are the fields that
    it does not print, or that are something else.
    """
    fields: dict[str, object] = dict(others)
    for name in model.model_fields.keys() - others.keys():
        in_ns = f"{name[:-3]}_ns"
        if name.endswith("_ms") and in_ns in type(printed).model_fields:
            fields |= in_milliseconds({name: getattr(printed, in_ns)})
        else:
            fields[name] = getattr(printed, name)
    return model.model_validate(fields).model_dump(mode="json")


def in_milliseconds(spans_ns: Mapping[str, int | None]) -> dict[str, float | None]:
    """Return nanoseconds as milliseconds; what is None stays so."""
    return {
        name: None if span_ns is None else milliseconds(span_ns)
        for name, span_ns in spans_ns.items()
    }
