"""Bearer tokens: random, recognisable, stored as a digest, written for their user only."""

from __future__ import annotations

import re
import secrets
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model.errors import HostError
from node.trust.tokens import digest, matches, new_token, write_token


def test_token_has_its_prefix_and_all_its_bits() -> None:
    """A token is the prefix and 256 bits in 43 characters that need no quoting anywhere."""
    assert re.fullmatch(r"parley_[A-Za-z0-9_-]{43}", new_token(secrets.token_bytes))
    assert new_token(bytes) == "parley_" + "A" * 43
    assert new_token(secrets.token_bytes) != new_token(secrets.token_bytes)


def test_digest_is_plain_sha256() -> None:
    """The digest can be computed with any SHA-256 tool."""
    assert digest("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@given(st.text(st.characters()), st.text(st.characters()))
def test_only_the_token_matches_its_digest(token: str, other: str) -> None:
    """Any text that a client may send has a digest, and matches only its own."""
    assert matches(token, digest(token))
    assert matches(other, digest(token)) == (other == token)


@pytest.mark.parametrize("stored", ["", "\u00e9" * 64, "0" * 64])
def test_a_broken_digest_matches_nothing(stored: str) -> None:
    """A comparison with any stored text raises nothing and matches nothing."""
    assert not matches("parley_x", stored)


def test_token_sent_as_broken_text_has_a_digest() -> None:
    """Bytes that are not UTF-8 arrive as surrogates, and are refused like any wrong token."""
    assert not matches("parley_\udcff\ud800", digest("parley_"))


def test_token_file_is_private(tmp_path: Path) -> None:
    """A token file can be read only by its user, even if an older file was open to others."""
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)
    write_token(path, "parley_new")
    assert path.read_text() == "parley_new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_token_without_a_folder_is_a_host_error(tmp_path: Path) -> None:
    """A missing folder is an error with an explanation."""
    with pytest.raises(HostError, match="cannot be written: No such file"):
        write_token(tmp_path / "missing" / "token", "parley_x")
