"""Rules of secrets: which are told, how they are sealed, and who uses those of the owner."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model.digests import measured_fingerprint
from node.model.errors import HostError
from node.model.named_secrets import KeptSecret, SecretUse, use_refusal, user_refusal
from node.model.secrets import (
    REDACTED,
    as_introduced,
    each_text,
    names_in,
    redacted_spec,
    resealed_spec,
    restored_spec,
    without_sealed,
)
from node.model.wire.secrets import SecretTerms
from node.plugins.archivers.http import HttpArchiverSpec
from node.plugins.tests.http import HttpSpec
from node.trust.sealing import SealingKey

KEY = SealingKey(bytes(range(64)))
SEALED = KEY.seal("hush", "spec")


def test_what_is_secret_is_not_shown() -> None:
    """Secret texts and the values of secret maps are replaced; null stays null."""
    spec = {"url": "http://x", "secret": "hush", "headers": {"Authorization": "hush"}}
    shown = redacted_spec(HttpArchiverSpec, spec)
    assert shown == {"url": "http://x", "secret": REDACTED, "headers": {"Authorization": REDACTED}}
    assert redacted_spec(HttpArchiverSpec, {"secret": None}) == {"secret": None}


@given(
    st.none() | st.text(min_size=1).filter(lambda text: text != REDACTED),
    st.dictionaries(st.text(), st.text().filter(lambda text: text != REDACTED)),
)
def test_what_was_shown_can_be_sent_back(secret: str | None, headers: dict[str, str]) -> None:
    """An edit that sends redacted values back changes no secret."""
    spec = {"url": "http://x", "secret": secret, "headers": headers}
    shown = redacted_spec(HttpArchiverSpec, spec)
    assert restored_spec(HttpArchiverSpec, shown, spec) == spec


def test_a_new_secret_takes_the_place_of_the_old_one() -> None:
    """A new secret replaces the old one; a redacted value without a stored one becomes null."""
    old = {"secret": "old", "headers": {"a": "1"}}
    new = {"secret": "new", "headers": {"a": REDACTED, "b": "2", "c": REDACTED}}
    assert restored_spec(HttpArchiverSpec, new, old) == {
        "secret": "new",
        "headers": {"a": "1", "b": "2", "c": None},
    }


def test_a_sealed_text_is_opened_for_its_purpose_only() -> None:
    """A text is opened by the key and for the purpose for which it was sealed, and not changed."""
    assert KEY.open(SEALED, "spec") == "hush"
    assert KEY.seal("hush", "spec") == SEALED != KEY.seal("hush", "archive")
    with pytest.raises(HostError, match="not what was sealed here"):
        KEY.open(SEALED, "archive")
    with pytest.raises(HostError, match="not what was sealed here"):
        KEY.open(SEALED[:-6] + "AAAAA=", "spec")


def test_a_text_of_another_key_names_both_keys() -> None:
    """A text that another key sealed is not opened; the reason names the keys and the file."""
    other = SealingKey(bytes(64))
    with pytest.raises(HostError, match=f"key {KEY.name}, and the file .* {other.name}"):
        other.open(SEALED, "spec")


def test_a_key_is_never_printed() -> None:
    """A key is shown by its name, which is a digest."""
    assert repr(KEY) == f"SealingKey({KEY.name})"


def test_what_is_told_of_a_spec_has_nothing_sealed() -> None:
    """A spec is told with its marks in place of sealed texts, and with the names of secrets."""
    spec = {
        "headers": {"A": {"sealed": SEALED}, "B": {"secret": "api"}},
        "list": [{"sealed": SEALED}],
    }
    assert without_sealed(spec) == {
        "headers": {"A": REDACTED, "B": {"secret": "api"}},
        "list": [REDACTED],
    }


def test_a_participant_knows_only_what_its_lead_told_it() -> None:
    """A participant seals what its lead told, and drops what a lead says was sealed here."""
    spec = {
        "headers": {"A": {"sealed": SEALED, "here": "parley1:forged"}, "B": {"sealed": "parley1:x"}}
    }
    stored = resealed_spec(spec, {SEALED: "hush"}, lambda text: f"parley1:own-{text}")
    assert stored["headers"] == {
        "A": {"sealed": SEALED, "here": "parley1:own-hush"},
        "B": {"sealed": "parley1:x"},
    }
    assert as_introduced(stored) == {
        "headers": {"A": {"sealed": SEALED}, "B": {"sealed": "parley1:x"}}
    }


def test_participants_agree_on_a_run_with_a_secret() -> None:
    """The digest of a run is one, whatever each host has sealed of what its lead told."""
    spec = {"url": "https://h/", "headers": {"A": {"sealed": SEALED}}}

    def digest(own: str, sealed: str = SEALED) -> str:
        told_spec = {"url": "https://h/", "headers": {"A": {"sealed": sealed}}}
        stored = resealed_spec(told_spec, {SEALED: "hush"}, lambda text: f"parley1:{own}-{text}")
        return measured_fingerprint("http", stored)

    assert digest("b") == digest("c") == measured_fingerprint("http", spec)
    assert digest("b", KEY.seal("other", "spec")) != digest("b")


def test_a_header_may_be_called_secret() -> None:
    """A header of the name secret is a text like any other, and no name of one."""
    spec = {"url": "http://h/", "headers": {"secret": "api", "X": {"secret": "api"}}}
    assert names_in(HttpSpec, spec) == {"api"}
    assert each_text(HttpSpec, spec, str)["headers"] == {"secret": "api", "X": "{'secret': 'api'}"}


BOUND = KeptSecret(
    SecretTerms(
        name="api", hosts=("api.example", "[2001:db8::1]:8443"), users=("ann",), leads=("lead",)
    ),
    "",
    0,
    0,
)


@pytest.mark.parametrize(
    ("lead", "host", "address", "port", "refusal"),
    [
        (None, "API.example", "API.example", 443, None),
        (None, "2001:db8::1", "2001:db8::1", 8443, None),
        (None, "2001:db8::1", "2001:db8::1", 443, "may not be sent to 2001:db8::1"),
        (None, "evil.example", "evil.example", 443, "may not be sent to evil.example"),
        ("lead", "api.example", "api.example", 443, None),
        ("lead", "api.example", "192.0.2.66", 443, "is not sent to 192.0.2.66 in place of"),
        ("other", "api.example", "api.example", 443, "no secret api for tasks of the node"),
    ],
)
def test_a_secret_goes_to_its_hosts_only(
    lead: str | None, host: str, address: str, port: int, refusal: str | None
) -> None:
    """A secret is sent to the hosts that it is bound to, and for the leads that its owner names."""
    found = use_refusal("api", BOUND, SecretUse(lead, [(host, address)], port))
    assert found is None if refusal is None else refusal in str(found)


def test_a_secret_is_used_by_the_users_that_it_names() -> None:
    """A user with the role run uses a secret that names them; for others there is none."""
    assert user_refusal("api", BOUND, "ann") is None
    assert user_refusal("api", BOUND, "bob") == user_refusal("api", None, "bob")


def test_a_user_who_is_no_longer_named_is_refused_before_each_run() -> None:
    """A run of a task whose user the secret does not name any more is not told it."""
    target = [("api.example", "api.example")]
    assert use_refusal("api", BOUND, SecretUse(None, target, 443, user="ann")) is None
    for secret in (BOUND, None):
        found = use_refusal("api", secret, SecretUse(None, target, 443, user="bob"))
        assert found == user_refusal("api", secret, "bob")


def test_others_use_a_secret_only_if_it_is_bound_to_hosts() -> None:
    """A secret for users or other leads names the hosts that it may be sent to."""
    with pytest.raises(ValueError, match="could have it sent to themselves"):
        SecretTerms(name="api", users=("ann",))
