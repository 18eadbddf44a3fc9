"""The build of the Debian package: its version, and the environment in it."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from deploy.package import built_for
from deploy.relocate import relocate


@pytest.mark.parametrize(
    ("os_release", "end"),
    [
        ('ID=debian\nVERSION_ID="12"\n', "+deb12"),
        ('ID=debian\nVERSION_ID="13"\n', "+deb13"),
        ('NAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu\n', "+ubuntu24.04"),
    ],
)
def test_a_version_ends_with_the_release_it_is_for(os_release: str, end: str) -> None:
    """Packages of two releases have two versions, and the later release has the later one."""
    assert built_for(os_release) == end


def test_an_environment_is_given_its_place(tmp_path: Path) -> None:
    """Texts name the place on the host, and the sums of installed files are those of the texts."""
    stage = str(tmp_path / "package")
    environment = tmp_path / "package/opt/parley"
    script = environment / "bin/parley"
    record = environment / "lib/site-packages/parley-1.dist-info/RECORD"
    for path in (script, record):
        path.parent.mkdir(parents=True)
    script.write_text(f"#!{environment}/bin/python3\n")
    binary = environment / "lib/library.so"
    binary.write_bytes(b"\0" + stage.encode())
    record.write_text("../../bin/parley,sha256=old,3\nparley/x.py,sha256=kept,4\nRECORD,,\n")
    assert relocate(environment, stage) == [script]
    text = b"#!/opt/parley/bin/python3\n"
    assert script.read_bytes() == text
    assert binary.read_bytes() == b"\0" + stage.encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).decode().rstrip("=")
    assert record.read_text().splitlines() == [
        f"../../bin/parley,sha256={digest},{len(text)}",
        "parley/x.py,sha256=kept,4",
        "RECORD,,",
    ]
