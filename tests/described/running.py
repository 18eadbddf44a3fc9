"""Runs schemathesis against a node: what its description says is asked, phase by phase."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node.execution import process

PHASES = ("examples", "coverage", "fuzzing", "stateful")
_CONFIG = Path(__file__).with_name("schemathesis.toml")
_OUTPUT_MAX = 100_000_000


@dataclass(frozen=True)
class Found:
    """The outcome of a run: what was sent in each phase, and what is not as it is described."""

    phases: dict[str, str]
    """By phase that ran: success, failure, or error."""
    sent: Counter[str]
    """By phase, the number of requests."""
    followed: int
    """The number of links from an answer to a further request that led to a success."""
    operations: int
    failures: list[Any]
    errors: list[Any]
    text: str
    """The output for people."""

    @property
    def is_whole(self) -> bool:
        """Return whether every phase ran and sent requests, and nothing was found."""
        every = all(self.phases.get(phase) == "success" and self.sent[phase] for phase in PHASES)
        return every and self.followed > 0 and not self.failures and not self.errors


async def ask(
    url: str,
    token: str,
    directory: Path,
    *,
    examples: int,
    seed: int,
    only: Sequence[str] = (),
) -> Found:
    """Ask a node with all phases, up to ``examples`` random requests of each operation in each.

    ``only`` are tags, to which the operations are limited; reports are written to the directory.
    """
    chosen = [word for tag in only for word in ("--include-tag", tag)]
    argv = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(_CONFIG)),
        *("run", f"{url}/v1/openapi.json", "--header", f"Authorization: Bearer {token}"),
        *("--phases", ",".join(PHASES), "--max-examples", str(examples), "--seed", str(seed)),
        *("--continue-on-failure", "--no-color", "--report", "json,ndjson", *chosen),
        *("--report-json-path", "report.json", "--report-ndjson-path", "report.ndjson"),
        *("--suppress-health-check", "all", "--warnings", "off"),
    ]
    running = await process.start(
        argv, env={"PATH": "/usr/bin:/bin", "HOME": str(directory)}, cwd=directory,
        output_bytes_max=_OUTPUT_MAX,
    )  # fmt: skip
    finished = await running.wait()
    text = finished.stdout.decode(errors="replace") + finished.stderr.decode(errors="replace")
    if not (directory / "report.json").exists():
        raise AssertionError(text)
    return _found(directory, text)


def _found(directory: Path, text: str) -> Found:
    report = json.loads((directory / "report.json").read_text())
    sent: Counter[str] = Counter()
    links = re.search(r"API Links: +(\d+) covered", text)
    for line in (directory / "report.ndjson").read_text().splitlines():
        event = json.loads(line).get("ScenarioFinished")
        if event is None:
            continue
        recorder = event.get("recorder") or {}
        sent[event["phase"]] += len(recorder.get("interactions", {}))
    ran = {
        name: phase["status"]
        for name, phase in report["phases"].items()
        if phase["skip_reason"] is None
    }
    return Found(
        ran,
        sent,
        0 if links is None else int(links[1]),
        report["operations"]["tested"],
        report["failures"],
        report["errors"],
        text,
    )
