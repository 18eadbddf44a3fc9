"""The leftovers of a killed ``parley simulate`` are removed by the next one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lead.simulation.server import abandoned_servers, remove
from node.execution import proctable
from node.postgres.binaries import ServerBinaries, locate

_OWNER = """
import sys
from lead.simulation.server import server
print(server().path, flush=True)
sys.stdin.read()
"""


@pytest.mark.nightly
def test_a_killed_simulation_leaves_nothing() -> None:
    """Server and directory of a process that lives stay, and those of one that is gone go."""
    binaries = locate()
    assert isinstance(binaries, ServerBinaries)
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        path = Path(owner.stdout.readline())
        [directory] = Path(tempfile.gettempdir()).glob(f"parley-simulation-{owner.pid}-*")
        assert path.is_relative_to(directory)
        assert directory not in abandoned_servers()
        servers = proctable.working_in(directory / "data")
        owner.kill()
    assert directory in abandoned_servers()
    asyncio.run(remove([directory], binaries))
    assert not directory.exists()
    assert servers
    assert not [pid for pid in servers if _runs(pid)]


def _runs(pid: int) -> bool:
    """Return whether a process runs: one that has ended may wait for its parent."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_what_others_have_put_there_stays(tmp_path: Path) -> None:
    """A link by such a name, and a directory without the number of a process, are left alone."""
    link = Path(tempfile.gettempdir()) / f"parley-simulation-{2**22 + 1}-link"
    link.symlink_to(tmp_path)
    nameless = Path(tempfile.mkdtemp(prefix="parley-simulation-of-somebody-"))
    try:
        assert not {link, nameless} & set(abandoned_servers())
    finally:
        link.unlink()
        nameless.rmdir()
