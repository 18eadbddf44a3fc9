"""The last release beside this program: node and lead of both, changed one after the other.

``python -m tests.releases.beside`` starts two nodes and their leads with the program of the last
release, which it takes from the history of this repository. It migrates the database of one of them
under the running program, and then replaces node and lead by those of this program, in either
order. After each change, runs of both nodes have to finish, and none may fail.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg

from deploy.released import check_out
from node.cli.lab.nodes import LabNode, NodePlan, module_environment
from node.cli.lab.supervisor import Lab
from node.execution import process
from node.execution.process import RunningProcess
from node.runtime.clock import SystemClock
from node.store.schema import schema_version
from tests.support.command_line import run_command
from tests.support.limits import RANKED_ALIKE
from tests.support.steps import Failed, require

_NEW = Path(module_environment()["PYTHONPATH"])
_TIME_S = 120.0
_RUNS = 3
"""The runs that have to finish after each change, at each node."""

_FINISHED = """
SELECT count(*) FROM run JOIN task ON task.id = run.task_id
WHERE run.state = 'finished' AND task.lead = $1 AND run.starts_at > $2
"""
_FAILED = """
SELECT string_agg(DISTINCT state || ': ' || reason, '; ') FROM run
WHERE state NOT IN ('waiting', 'booked', 'running', 'merging', 'finished') AND starts_at > $1
"""


class Story:
    """Two nodes and their leads, of which each is run by one of two programs."""

    def __init__(self, old: Path) -> None:
        """Create the story; all begin with the program in ``old``."""
        self._old = old
        self._programs = dict.fromkeys("ab", old)
        self._plans: dict[str, NodePlan] = {}
        self._leads: dict[str, RunningProcess] = {}
        self._clock = SystemClock()
        self.lab = Lab(2, command=self._node_command)

    async def tell(self) -> None:
        """Change one after the other.

        :raises Failed: a promise is broken.
        """
        try:
            await self._begin()
            for change in (
                self._migrate,
                self._new_lead,
                self._new_node,
                self._old_lead_again,
                self._new_lead,
                self._other_lead_is_new,
            ):
                await self._step(change)
        finally:
            for lead in self._leads.values():
                await lead.end(10)

    async def _begin(self) -> None:
        for name in "ab":
            await self._start_lead(name, self._old)
        for lead, other in ("ab", "ba"):
            line = "task create idle --spec duration=PT1S --spec class=normal --repeat 4s"
            line += f" --slip 3s --participant {lead} --participant {other}"
            await self._parley(lead, line)
        await self._step(self._nothing)
        await self._step(self._new_command)

    async def _step(self, change: Callable[[], Awaitable[None]]) -> None:
        print(f"  ..  {(change.__doc__ or '').rstrip('.')}", flush=True)
        await change()
        since = await self._value("a", "SELECT clock_timestamp()")
        for name in "ab":
            await self._wait_for(name, _FINISHED, _RUNS, self._node(name).identity, since)
            failed = await self._value(name, _FAILED, since)
            require(failed is None, f"every run at {name} finishes (but {failed})")
        print("  ok", flush=True)

    async def _nothing(self) -> None:
        """Node a and node b are of the last release."""

    async def _new_command(self) -> None:
        """The command of this program asks node a, which is of the last release."""
        for line in (
            "task create rtt --spec dest=127.0.0.1 --spec count=1",
            "task list",
            "run list",
            "schedule",
            "explain @-1",
            "node list",
            "campaign list",
            "archive list",
            "reservation list",
        ):
            await self._parley("a", line, _NEW)

    async def _migrate(self) -> None:
        """The database of node a is migrated under the last release."""
        node = self._node("a")
        settings = {**os.environ, "PARLEY_DSN": node.dsn, "PARLEY_STATE_DIR": node.state}
        done = await run_command(("admin", "migrate", "--yes"), settings)
        require(done.code == 0, f"it is migrated: {done.out}{done.err}")
        version = await self._value("a", "SELECT max(version) FROM schema_version")
        require(version == schema_version(), f"it is of version {schema_version()}")

    async def _new_lead(self) -> None:
        """The lead of node a is of this program."""
        await self._restart_lead("a", _NEW)

    async def _new_node(self) -> None:
        """Node a is of this program, with its lead; node b is of the last release."""
        self._programs["a"] = _NEW
        await self.lab.restart("a")

    async def _old_lead_again(self) -> None:
        """Node a is of this program, its lead of the last release."""
        await self._restart_lead("a", self._old)

    async def _other_lead_is_new(self) -> None:
        """Node b is migrated at its start, with its lead, by this program."""
        os.environ["PARLEY_MIGRATE"] = "1"
        await self._leads.pop("b").end(10)
        self._programs["b"] = _NEW
        await self.lab.restart("b")
        await self._start_lead("b", _NEW)

    def _node_command(self, plan: NodePlan) -> list[str]:
        self._plans[plan.name] = plan
        # The lab's own limits have words that the last release does not know.
        (plan.state / "limits.toml").write_text(RANKED_ALIKE)
        return self._command("node_main", plan, self._programs[plan.name])

    @staticmethod
    def _command(entry: str, plan: NodePlan, program: Path) -> list[str]:
        argv = ["env", f"PYTHONPATH={program}", sys.executable]
        argv += ["-c", f"from node.cli.services import {entry}; {entry}()"]
        argv += ["--name", plan.name, "--listen", plan.listen, "--url", plan.url]
        argv += ["--address", plan.address, "--dsn", plan.dsn]
        return [*argv, "--state-dir", str(plan.state)]

    async def _restart_lead(self, name: str, program: Path) -> None:
        await self._leads.pop(name).end(10)
        await self._start_lead(name, program)

    async def _start_lead(self, name: str, program: Path) -> None:
        plan = self._plans[name]
        argv = self._command("lead_main", plan, program)
        log = plan.state / "lead.log"
        self._leads[name] = await process.start(argv, log=log, cwd=plan.state)

    def _node(self, name: str) -> LabNode:
        return next(node for node in self.lab.nodes if node.name == name)

    async def _parley(self, name: str, line: str, of: Path | None = None) -> None:
        node = self._node(name)
        path = f"PYTHONPATH={of or self._programs[name]}"
        program = [path, sys.executable, "-m", "node.cli.main"]
        settings = [f"PARLEY_SERVER={node.url}", f"PARLEY_TOKEN={node.token}"]
        argv = ["env", *settings, *program, *shlex.split(line)]
        done = await process.finish(argv, timeout_s=_TIME_S, cwd=self._plans[name].state)
        require(done.exit_code == 0, f"parley {line} works: {done.stderr.decode()}")

    async def _value(self, name: str, query: str, *values: object) -> Any:
        connection = await asyncpg.connect(self._node(name).dsn)
        try:
            return await connection.fetchval(query, *values)
        finally:
            await connection.close()

    async def _wait_for(self, name: str, query: str, least: int, *values: object) -> None:
        for _ in range(int(_TIME_S * 2)):
            if await self._value(name, query, *values) >= least:
                return
            await self._clock.sleep(0.5)
        wanted = f"{least} runs led by {name} finish"
        raise Failed(f"not within {_TIME_S:.0f} s: {wanted}; {self._log(name)}")

    def _log(self, name: str) -> str:
        plan = self._plans[name]
        tails = (process.tail_of(file, 20) for file in (plan.log, plan.state / "lead.log"))
        return "\n".join(tails)


async def main() -> str | None:
    """Tell the story; return the error message of the step that fails."""
    folder = Path(tempfile.mkdtemp(prefix="parley-release-"))
    folder.chmod(0o755)
    try:
        old = folder / "program"
        print(f"the last release is of commit {check_out(old)[:8]}")
        story = Story(old)
        async with story.lab:
            await story.tell()
    except (Failed, LookupError) as fault:
        return str(fault)
    finally:
        shutil.rmtree(folder)
    return None


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
