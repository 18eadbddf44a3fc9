"""Ctrl-C in a run of the tests: what it leaves, and what it says last."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import REPOSITORY

MODULE = """\
from __future__ import annotations

import os
from pathlib import Path

import pytest

from node.postgres.cluster import PrivateCluster

READY = Path(os.environ["READY"])


@pytest.mark.needs("never")
def test_left_out() -> None: ...


async def test_waits(cluster: PrivateCluster) -> None:
    with READY.open("w") as ready:
        ready.write("up")
    with Path(os.environ["READY"]).open("r") as never:
        never.read()
"""
"""Holds a Postgres, and waits for ever; another test needs what no host has."""

PLUGIN = """\
def pytest_configure() -> None:
    from tests.support.needs import RIGHTS

    RIGHTS["never"] = ("never there", bool)
"""


@pytest.fixture(name="place")
def _place() -> Iterator[Path]:
    """A folder for temporary files that every account may use."""
    place = Path(tempfile.mkdtemp(prefix="i-"))
    place.chmod(0o1777)
    yield place
    shutil.rmtree(place)


@pytest.mark.timeout(120)
@pytest.mark.nightly
def test_ctrl_c_leaves_nothing_and_says_what_was_not_run(place: Path, tmp_path: Path) -> None:
    """An interrupted run removes all its files, and counts what it has left out."""
    (tmp_path / "never.py").write_text(PLUGIN)
    module = tmp_path / "test_waiting.py"
    module.write_text(MODULE)
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    plugins = ("-p", "never", "-p", "tests.conftest", "-p", "no:cacheprovider")
    argv = [sys.executable, "-m", "pytest", *plugins, "--rootdir", str(REPOSITORY), str(module)]
    environment = os.environ | {
        "TMPDIR": str(place),
        "PYTEST_DEBUG_TEMPROOT": str(tmp_path),
        "PYTHONPATH": f"{tmp_path}:{REPOSITORY}",
        "READY": str(ready),
    }
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [*argv, "-c", "pyproject.toml", "--numprocesses", "1"],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert ready.read_text() == "up"
    assert list(place.glob("parley-*/parley-tests-*/postgres"))
    os.killpg(process.pid, signal.SIGINT)
    printed, _ = process.communicate()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, printed
    assert list(place.iterdir()) == []
    assert printed.splitlines()[-1] == "0 passed, 1 not run: never there (1)"
