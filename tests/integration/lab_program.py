"""A program that serves a lab of fake nodes like ``parley lab up``, for tests of signals."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from pathlib import Path

from node.cli.lab.nodes import NodePlan, node_command
from node.cli.lab.supervisor import Lab, serve
from node.cli.lab.wan import WanSettings

FAKE = str(Path(__file__).with_name("fake_node.py"))


def fake_command(plan: NodePlan, *more: str) -> list[str]:
    """Return the real command with the fake program in place of the real one."""
    real = node_command(plan)
    return [real[0], FAKE, *real[real.index("up") + 1 :], *more]


def show(lab: Lab) -> None:
    """Print the nodes on one line."""
    sys.stdout.write(json.dumps([dataclasses.asdict(node) for node in lab.nodes]) + "\n")
    sys.stdout.flush()


def say(text: str, *_: str) -> None:
    """Print the progress of the start."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    settings = WanSettings(delay_ms=5) if "--namespaces" in sys.argv else None
    asyncio.run(serve(Lab(2, settings, command=fake_command, progress=say), show))
