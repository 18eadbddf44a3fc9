"""The programs that send and receive one text, started by the tool's own argv on loopback."""

from __future__ import annotations

import dataclasses
import subprocess
import time
from typing import Any

import pytest

from node.model.errors import ToolOutputError
from node.plugins import registry
from node.plugins.contracts import Output, Part, PartContext, Party
from node.plugins.tools.simplestreamer import TOOL
from tests.support.loopback import free_port
from tests.support.patience import PATIENCE_S

PATIENCE_US = 10_000_000
TEST = registry.tests()["simplestream"]


def session(source: str, dest: str, **fields: Any) -> list[PartContext]:
    """Return both parts of a run that starts now."""
    spec: Any = TEST.spec_model.model_validate({"dest": "b", "timeout": "PT1S"} | fields)
    starts = time.time_ns() // 1000
    parties = (Party("a", source), Party("b", dest, {"port": free_port()}))
    first = PartContext(spec, 0, parties, starts, starts + TOOL.duration(spec))
    return [first, dataclasses.replace(first, participant=1)]


def run(part: PartContext) -> subprocess.Popen[bytes]:
    """Start a participant's program."""
    argv = TOOL.command(part).argv
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def read(part: PartContext, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return what the tool reads from a program, once it has ended."""
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    return TOOL.read(part, Output(process.returncode, stdout, stderr))


@pytest.mark.parametrize(("source", "dest"), [("127.1.0.1", "127.1.0.2"), ("::1", "::1")])
def test_a_text_arrives(source: str, dest: str) -> None:
    """The text arrives as it was sent; the sender waits for a receiver that is late."""
    text = "höchst\neigentümlich \N{BLACK STAR}"
    sending, receiving = session(source, dest, text=text, dawdle="PT0.1S")
    later = PATIENCE_US  # so that a busy machine does not end them too early
    sending = dataclasses.replace(sending, ends=sending.ends + later)
    receiving = dataclasses.replace(receiving, ends=receiving.ends + later)
    sender = run(sending)
    receiver = run(receiving)
    parts = [read(sending, sender), read(receiving, receiver)]
    merged = TEST.merge(sending.spec, [Part(at, "ab"[at], part) for at, part in enumerate(parts)])
    assert merged.reason is None
    result = merged.result or {}
    assert result["sent"] == result["received"] == text
    assert 0 <= result["dawdled_ms"] <= 100 <= result["elapsed_ms"]
    assert TEST.summary(result).startswith(f"{len(text)} characters in ")


@pytest.mark.nightly
def test_nobody_is_there() -> None:
    """An end without the other one says so, and so does the run."""
    sending, receiving = session("127.1.0.1", "127.1.0.2")
    receiver = run(receiving)
    with pytest.raises(ToolOutputError, match="nobody connected and sent anything in time"):
        read(receiving, receiver)
    sender = run(session("127.1.0.1", "127.1.0.2")[0])
    with pytest.raises(ToolOutputError, match="cannot connect: Connection refused"):
        read(sending, sender)
    lost = [Part(0, "a", None, "cannot connect"), Part(1, "b", None, "nobody came")]
    assert TEST.merge(sending.spec, lost).reason == "a: cannot connect; b: nobody came"
