"""The archives of a release: what they have, and that anybody can build the same ones."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploy.package import version
from tests.architecture.sources import REPOSITORY


@pytest.mark.timeout(120)
@pytest.mark.nightly
def test_archives_are_built_alike_twice(tmp_path: Path) -> None:
    """Two builds of one commit are equal, and have licences and the locks of extras inside."""
    built = []
    for place in (tmp_path / "one", tmp_path / "other"):
        argv = [sys.executable, "-m", "deploy.archives", str(place)]
        subprocess.run(argv, cwd=REPOSITORY, check=True, capture_output=True)
        built.append({path.name: path.read_bytes() for path in place.iterdir()})
    assert built[0] == built[1]
    number = version()
    node, client = (
        zipfile.ZipFile(tmp_path / f"one/{name}-{number}-py3-none-any.whl").namelist()
        for name in ("parley_scheduler", "parley_client")
    )
    for names in (node, client):
        assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)
    assert "node/runtime/requirements/kafka.txt" in node
    with tarfile.open(tmp_path / f"one/parley-ansible-{number}.tar.gz") as role:
        assert f"parley-ansible-{number}/deploy/ansible/parley.yml" in role.getnames()
