"""The settings of a node."""

from __future__ import annotations

import json

import click
import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from node.cli.services import settings_of, warn_of_contexts
from node.execution.contexts import Contexts
from node.model import times
from node.runtime.settings import Settings, unknown_settings


def test_a_node_is_reached_or_fetches() -> None:
    """A node cannot both have a URL and fetch its work."""
    with pytest.raises(ValidationError, match="set pull or url, not both"):
        Settings(pull=True, url="http://a.example:8642")
    assert Settings(pull=True).url is None


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, field in Settings.model_fields.items()
        if field.get_default(call_default_factory=True) is not None
    ],
)
@pytest.mark.mostly_nightly
def test_every_default_is_accepted_when_it_is_set(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting that is set to its default, as it is documented, has that value."""
    default = getattr(Settings(), name)
    written = Settings().model_dump(mode="json")[name]
    if name.startswith("keep_") or name == "backup_every":
        written = times.format_duration(default)
    monkeypatch.setenv(
        f"PARLEY_{name.upper()}", written if isinstance(written, str) else json.dumps(written)
    )
    assert getattr(Settings(), name) == default


def test_records_are_kept_for_an_hour_to_a_hundred_years() -> None:
    """A retention may be longer than any duration of a task, and is refused beyond its bound."""
    kept = Settings.model_validate({"keep_finished": "P3650D", "keep_failed": "P36500D"})
    assert (kept.keep_finished, kept.keep_failed) == (3650 * times.DAY, 36_500 * times.DAY)
    with pytest.raises(ValidationError, match="longer than 36500 days; write at most 36500 d"):
        Settings.model_validate({"keep_finished": "P36501D"})
    with pytest.raises(ValidationError, match="is 59 min; set 1 h to 36500 d"):
        Settings.model_validate({"keep_finished": "PT59M"})
    with pytest.raises(ValidationError, match="longer than 366 days; write at most 366 d"):
        Settings.model_validate({"horizon": "P367D"})


@pytest.mark.parametrize(
    ("listen", "local"),
    [
        ("127.0.0.1:8642", "http://127.0.0.1:8642"),
        ("0.0.0.0:80", "http://127.0.0.1:80"),
        ("[::]:8642", "http://[::1]:8642"),
        ("[2001:db8::1]:8642", "http://[2001:db8::1]:8642"),
        ("a.example:8642", "http://a.example:8642"),
    ],
)
def test_a_host_reaches_its_own_api(listen: str, local: str) -> None:
    """For every listening address the host itself has a URL."""
    assert Settings(listen=listen).local_url == local


def test_a_free_port_needs_a_url() -> None:
    """Port 0 is another port at each start, so a node says nowhere where it is without a URL."""
    with pytest.raises(ValidationError, match="any free port, another one at each start"):
        Settings(listen="127.0.0.1:0")
    assert Settings(listen="127.0.0.1:0", url="http://127.0.0.1:8642").listen_port == 0


def test_targets_are_networks() -> None:
    """Networks are read as such, and what is none is refused with an example."""
    allowed = Settings(targets="10.9.0.0/16 ::1").allowed_targets
    assert list(map(str, allowed)) == ["10.9.0.0/16", "::1/128"]
    with pytest.raises(ValueError, match=r"write networks such as 10\.9\.0\.0/16"):
        Settings(targets="b.example")


def test_a_wrong_setting_is_told_by_the_name_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault names the option, or the environment variable if there is no such option."""
    monkeypatch.setenv("PARLEY_CONTEXTS", "foo")
    with pytest.raises(click.UsageError, match=r"^PARLEY_CONTEXTS: 'foo' is not a context"):
        settings_of({"name": None, "pull": False})
    monkeypatch.delenv("PARLEY_CONTEXTS")
    with pytest.raises(click.UsageError, match=r"^--listen: must be HOST:PORT"):
        settings_of({"listen": "here"})


def test_contexts_that_are_of_no_use_are_told_at_the_start() -> None:
    """Contexts that cannot be used are reported at the start with the reason."""
    allowed = Settings(contexts="interface:nosuch0 namespace:noNs address:127.0.0.1")
    with capture_logs() as logged:
        warn_of_contexts(Contexts(allowed.allowed_contexts), allowed.allowed_contexts)
    assert [(each["context"], each["why"].partition(";")[0]) for each in logged] == [
        ("interface:nosuch0", "this host has no interface nosuch0"),
        ("namespace:noNs", "this host has no network namespace noNs"),
    ]


def test_unknown_settings_are_told() -> None:
    """Each variable that is no setting is told with a similar one, and settings are not."""
    known = {"PARLEY_PORT_FIRST": "1", "PARLEY_TOKEN": "x", "PARLEY_STATE_DIR": "/x", "PATH": "/"}
    assert unknown_settings(known) == []
    assert unknown_settings({**known, "PARLEY_PROT_FIRST": "1", "PARLEY_QX": ""}) == [
        "PARLEY_PROT_FIRST is not a setting; did you mean PARLEY_PORT_FIRST?",
        "PARLEY_QX is not a setting, and has no effect",
    ]
