"""The checks that every tool makes of a program's output before it parses it. Pure."""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from node.model.errors import ToolOutputError
from node.plugins.contracts import Output
from node.plugins.participation import first_fault

BYTES_MAX = 10_000_000
"""Maximum size of output. No tool's result is larger: the largest, iperf3's, is below 6 MB."""

TEXT_BYTES_MAX = 2_000_000
"""Maximum size of output that is parsed line by line, which takes longer: the longest, ping's, is
half as long."""

_LONGEST_CAUSE = 300
_CUT = "Unterminated string"
"""The fault of a document that was cut within a text."""

Model = TypeVar("Model", bound=BaseModel)


def text_of(output: Output, program: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """Return standard output as text.

    :raises ToolOutputError: it is too long, or not UTF-8.
    """
    if len(output.stdout) > bytes_max:
        raise ToolOutputError(f"{program} printed more than {bytes_max} bytes, too many to read")
    try:
        return output.stdout.decode()
    except UnicodeDecodeError as fault:
        raise ToolOutputError(f"{program} printed bytes that are not UTF-8: {fault}") from None


def document_of(output: Output, program: str, model: type[Model]) -> Model:
    """Return standard output as the JSON document ``model``.

    :raises ToolOutputError: the program failed, or printed something else.
    """
    text = text_of(output, program, BYTES_MAX)
    if not text.strip():
        raise failure(output, program, "it printed nothing")
    try:
        return model.model_validate_json(text, strict=True)
    except ValidationError as fault:
        raise failure(output, program, first_fault(fault)) from None


def parsed(output: Output, program: str) -> tuple[object, str]:
    """Return the JSON document in standard output, and the text behind it.

    Lines before it are warnings, and are left out. It need not keep to RFC 8259: it may have NaN.

    :raises ToolOutputError: it has none, or a part of one.
    """
    text = text_of(output, program, BYTES_MAX)
    if not text.strip():
        raise failure(output, program, "it printed nothing")
    begin = 0 if text.lstrip().startswith("{") else text.find("\n{") + 1
    begin = text.find("{", begin)
    if begin < 0:
        raise failure(output, program, f"it printed no JSON: {text.strip().splitlines()[0][:60]!r}")
    try:
        document, end = json.JSONDecoder().raw_decode(text, begin)
    except json.JSONDecodeError as fault:
        cut = not text[fault.pos :].strip() or fault.msg.startswith(_CUT)
        size = len(output.stdout)
        cause = f"its output ends in the middle ({size} bytes)" if cut else _unlike_json(fault)
        raise failure(output, program, cause) from None
    except (ValueError, RecursionError):  # a number of thousands of digits, endless nesting
        raise failure(output, program, "it printed JSON that nobody can read") from None
    return document, text[end:].strip()


def _unlike_json(fault: json.JSONDecodeError) -> str:
    return f"it printed no valid JSON: {fault.msg} in line {fault.lineno}"


def record_of(record: bytes, program: str, model: type[Model]) -> Model:
    """Return one record of a program that prints one per interval, as ``model``.

    :raises ToolOutputError: it is something else.
    """
    try:
        return model.model_validate_json(record, strict=True)
    except ValidationError as fault:
        cause = f"{program}: a record is not valid ({first_fault(fault)})"
        raise ToolOutputError(cause) from None


def failure(output: Output, program: str, otherwise: str) -> ToolOutputError:
    """Return the error for an output without a result, cause first.

    The cause is that the launcher had to end the program, or else its message on standard error, or
    else ``otherwise`` with the exit code.
    """
    message = complaint(output, program)
    if output.ended_by != "itself":
        late = f"{program} had not finished at the end of the run"
        return ToolOutputError(f"{late}: {message}" if message else late)
    if message:
        return ToolOutputError(f"{program}: {message}")
    return ToolOutputError(f"{program}: {otherwise} (exit code {output.exit_code})")


def complaint(output: Output, program: str) -> str:
    """Return the significant line of standard error, without the program's name; empty if none.

    That is the first line, or the last one of a Python traceback.
    """
    text = output.stderr[:TEXT_BYTES_MAX].decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    significant = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return significant.removeprefix(f"{program}: ")[:_LONGEST_CAUSE]
