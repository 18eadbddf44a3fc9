"""The script that installs the tests' packages as root, and otherwise prints the command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from deploy import packages, progress
from deploy.packages import Need

Commands = list[list[str]]


@pytest.fixture(name="commands")
def _commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Commands:
    """Record the commands of apt-get, and fail those that include ``broken``."""
    told: Commands = []

    def run(
        argv: Sequence[str], stage: Callable[[str], str | None], environment: Mapping[str, str]
    ) -> bool:
        assert stage("Setting up jq (1.6-2.1) ...") == "Setting up jq (1.6-2.1)"
        assert environment["DEBIAN_FRONTEND"] == "noninteractive"
        assert packages.POLICY.read_text() == "#!/bin/sh\nexit 101\n"
        told.append(list(argv[4:]))
        return "broken" not in argv

    monkeypatch.setattr(packages, "run", run)
    monkeypatch.setattr("deploy.packages.time.sleep", lambda _: None)
    monkeypatch.setattr(packages, "POLICY", tmp_path / "policy-rc.d")
    needs = {
        "here": Need("here", lambda: True),
        "jq": Need("jq", lambda: False),
        "other": Need("broken", lambda: False),
    }
    monkeypatch.setattr(packages, "NEEDS", needs)
    return told


def test_root_gets_what_is_missing(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After three attempts with all packages each is tried alone, and failures are listed."""
    monkeypatch.setattr(packages, "can_install", lambda: True)
    packages.main()
    assert commands == [["update"], ["install", "jq", "broken"]] * 3 + [
        ["install", "jq"],
        ["install", "broken"],
    ]
    assert capsys.readouterr().out.endswith("These packages could not be installed: broken\n")
    assert not packages.POLICY.exists()


def test_what_is_installed_did_not_fail(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only packages that are not there are listed where apt-get fails for another one."""
    monkeypatch.setattr(packages, "can_install", lambda: True)
    monkeypatch.setattr(packages, "_is_installed", "held-up-broken".__eq__)
    packages.install(["held-up-broken", "broken"])
    assert capsys.readouterr().out.endswith("These packages could not be installed: broken\n")


def test_the_owners_policy_about_services_stays(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An existing policy is neither changed nor removed."""
    monkeypatch.setattr(packages, "can_install", lambda: True)
    packages.POLICY.write_text("#!/bin/sh\nexit 101\n")
    packages.main()
    assert packages.POLICY.read_text() == "#!/bin/sh\nexit 101\n"


def test_others_are_told_in_one_line(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is a command that installs all missing packages."""
    monkeypatch.setattr(packages, "can_install", lambda: False)
    packages.main()
    [line] = capsys.readouterr().out.splitlines()
    assert line.endswith("sudo apt-get install --no-install-recommends jq broken")
    assert commands == []


@pytest.mark.nightly
def test_a_failed_command_shows_what_it_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """A failed command shows its last lines, and a successful one shows nothing."""
    assert not progress.run(["sh", "-c", "echo reason >&2; exit 3"], lambda _: None)
    assert capfd.readouterr().err == "reason\n"
    assert progress.run(["sh", "-c", "echo fine"], lambda _: None)
    assert capfd.readouterr() == ("", "")


def test_a_landmark_is_told_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    """A landmark is reported at once; other stages only every few seconds."""
    script = "echo one; echo two; echo three"
    assert progress.run(["sh", "-c", script], str.strip, landmark="two")
    assert capfd.readouterr().out == "  two\n"
