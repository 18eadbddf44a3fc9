"""Profiles: which server, token and key a command uses, and the file that has them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import click
import pytest

from node.cli.invocation import Invocation
from node.cli.profiles import Profile, Profiles, config_path, read_profiles, toml_of, write_profiles

A, B, C = "https://a.example:8642", "https://b.example:8642", "https://c.example:8642"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep two profiles, a by default, in a home of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("SERVER", "TOKEN", "IDENTITY", "PROFILE", "PLAIN_HTTP"):
        monkeypatch.delenv(f"PARLEY_{name}", raising=False)
    (tmp_path / "token").write_text("of-b\n")
    b = Profile(B, token_file=str(tmp_path / "token"), output="yaml", plain_http=True)
    write_profiles(Profiles("a", {"a": Profile(A, token="of-a", identity="key-a"), "b": b}))
    return tmp_path


def used(invocation: Invocation) -> tuple[str, str | None, str | None]:
    """Return server, token and key that an invocation uses."""
    return invocation.server_url(), invocation.access_token(), invocation.expected_identity


def test_the_order_of_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options come first, then --profile, the environment, and the profile by default."""
    assert used(Invocation()) == (A, "of-a", "key-a")
    monkeypatch.setenv("PARLEY_PROFILE", "b")
    assert used(Invocation()) == (B, "of-b", None)
    monkeypatch.setenv("PARLEY_SERVER", C)
    assert used(Invocation()) == (C, None, None)
    monkeypatch.setenv("PARLEY_TOKEN", "of-c")
    monkeypatch.setenv("PARLEY_IDENTITY", "key-c")
    assert used(Invocation()) == (C, "of-c", "key-c")
    assert used(Invocation(profile="a")) == (A, "of-a", "key-a")
    given = Invocation(profile="a", server=B, token="given", server_identity="key")
    assert used(given) == (B, "given", "key")


def test_tokens_and_keys_stay_with_their_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile's token and key are used for its server only, however that was named."""
    assert used(Invocation(server=B)) == (B, None, None)
    assert used(Invocation(server=f"{A}/")) == (A, "of-a", "key-a")
    assert used(Invocation(server=B, profile="a")) == (B, None, None)
    assert not Invocation(server=B, profile="a").allows_plain_http
    assert Invocation(profile="b").allows_plain_http
    monkeypatch.setenv("PARLEY_TOKEN", "of-the-environment")
    assert Invocation(server=B).is_token_borrowed
    assert not Invocation(profile="a").is_token_borrowed  # it has a token of its own
    assert used(Invocation(profile="a"))[1] == "of-a"


def test_the_output_of_a_profile() -> None:
    """The format of a profile is used unless an option names one, or a program of jq needs JSON."""
    assert Invocation(profile="b").writer().format == "yaml"
    assert Invocation(profile="b", output="csv").writer().format == "csv"
    assert Invocation(profile="b", jq=".").writer().format == "json"
    assert not Invocation(profile="b").wants_json


def test_unknown_profiles_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name without a profile is refused, and the others are named."""
    with pytest.raises(click.UsageError, match="there is no profile z; there are: a, b"):
        Invocation(profile="z").server_url()
    monkeypatch.setenv("PARLEY_PROFILE", "z")
    with pytest.raises(click.UsageError, match="there is no profile z"):
        Invocation().access_token()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("profiles = 3", "profiles are tables"),
        ("[profile.a]", "profile is no setting"),
        ("[profiles.a]", "profiles.a needs a server"),
        ('[profiles.a]\nserver = "x"\ntokn = "y"', "profiles.a.tokn is no setting"),
        ('[profiles.a]\nserver = "x"\nplain_http = "yes"', "plain_http is not true or false"),
        ("[profiles", "is wrong"),
    ],
)
def test_wrong_files_are_told(text: str, fault: str) -> None:
    """A fault of the file is told with its path."""
    config_path().write_text(text)
    with pytest.raises(click.UsageError, match=fault):
        read_profiles()


def test_only_the_owner_may_read_tokens() -> None:
    """The file is private from the beginning, and refused when others may read its tokens."""
    assert config_path().stat().st_mode & 0o777 == 0o600
    config_path().chmod(0o644)
    with pytest.raises(click.UsageError, match="chmod 600"):
        read_profiles()


def test_texts_survive_the_file() -> None:
    """Quotes, line ends, and letters of any kind are as they were after reading."""
    odd = Profile("https://x", token='"\\\n\t\x7fé\u2028\U0001f600', output="table")
    write_profiles(Profiles(None, {"x": odd}))
    assert read_profiles() == Profiles(None, {"x": odd})
    assert tomllib.loads(toml_of(Profiles(None, {}))) == {}
