"""The check of a bundle: whatever is changed in it is found."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.model.canonical import canonical
from node.model.errors import InvalidDocument
from node.results.bundles.replay import differences
from node.results.bundles.verification import ConfirmedKeys, Outcome, check_bundle, parse_bundle
from tests.support.bundles import (
    LEAD,
    OTHER,
    Bundle,
    at,
    changed,
    check,
    invented,
    is_found,
    keys_of,
    leaves,
    put,
    signed_again,
)

BUNDLE = invented()
KEYS = keys_of(BUNDLE)
FILE = (json.dumps(BUNDLE, indent=2, ensure_ascii=False) + "\n").encode()
LEAVES = sorted(leaves(BUNDLE), key=str)
OF_OTHER = [
    path
    for path in LEAVES
    if path[:2] == ("parts", 1) or (path[0] == "intervals" and path[2:4] == ("shares", 1))
]

VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, 1, -1, 0.1, 2**60, "", "x", [], {}, "2026-12-01T00:00:01Z"]
)


def test_the_invented_bundle_is_verified() -> None:
    """Unchanged, whatever its spelling, the bundle is verified with the keys of both nodes."""
    assert check(BUNDLE, KEYS).outcome is Outcome.VERIFIED
    for text in (FILE, canonical(BUNDLE), json.dumps(BUNDLE, sort_keys=True).encode("utf-16")):
        assert check_bundle(parse_bundle(text), KEYS).outcome is Outcome.VERIFIED
    assert len(OF_OTHER) > 15


@pytest.mark.parametrize("nested", [400, 930, 1100])
def test_a_value_nested_too_deep_is_no_fault_of_the_check(nested: int) -> None:
    """A file that is deeper than a program can look is changed, or no bundle."""
    text = json.dumps(BUNDLE).replace(
        '"spec": {', f'"spec": {{"x": {"[" * nested}{"]" * nested}, ', 1
    )
    assert is_found(text.encode(), KEYS)


@pytest.mark.parametrize("value", ['"\\ud800"', "1e999", "-1e999"])
def test_a_value_that_nobody_can_sign_is_none_of_a_bundle(value: str) -> None:
    """Text that is no Unicode, and numbers that no program can hold, make a file no bundle."""
    text = json.dumps(BUNDLE).replace('"spec": {', f'"spec": {{"x": {value}, ', 1)
    with pytest.raises(InvalidDocument):
        parse_bundle(text.encode())


@given(st.sampled_from(LEAVES), VALUES)
@settings(max_examples=400, deadline=None)
@pytest.mark.nightly
def test_each_changed_value_is_found(path: tuple[str | int, ...], value: Any) -> None:
    """No value of a bundle can be replaced by another one."""
    forged = changed(BUNDLE, lambda it: put(it, path, value))
    if canonical(at(BUNDLE, path)) != canonical(value):
        assert is_found(json.dumps(forged).encode(), KEYS)


@pytest.mark.parametrize("path", LEAVES, ids=str)
@pytest.mark.mostly_nightly
def test_each_left_out_value_is_found(path: tuple[str | int, ...]) -> None:
    """No value can be left out, and none be added beside it."""

    def leave_out(forged: Bundle) -> None:
        del at(forged, path[:-1])[path[-1]]

    def add(forged: Bundle) -> None:
        beside = at(forged, path[:-1])
        beside.append("more") if isinstance(beside, list) else beside.update(more=1)

    for change in (leave_out, add):
        assert is_found(json.dumps(changed(BUNDLE, change)).encode(), KEYS), change.__name__


@given(st.integers(0, len(FILE) - 1), st.integers(0, 255))
@settings(max_examples=1500, deadline=None)
@pytest.mark.nightly
def test_each_changed_byte_is_found(place: int, byte: int) -> None:
    """A file with another byte is found, or it is the same document with other spacing."""
    text = FILE[:place] + bytes([byte]) + FILE[place + 1 :]
    if not is_found(text, KEYS):
        assert canonical(parse_bundle(text)) == canonical(BUNDLE)


@given(st.sampled_from(OF_OTHER), VALUES)
@settings(max_examples=300, deadline=None)
@pytest.mark.nightly
def test_each_value_of_a_participant_is_kept_by_its_signature(
    path: tuple[str | int, ...], value: Any
) -> None:
    """A lead that changes a participant's value is found, or leaves its signature out."""
    forged = signed_again(changed(BUNDLE, lambda it: put(it, path, value)), LEAD)
    if canonical(at(BUNDLE, path)) == canonical(value):
        return
    if path[-1] == "signature" and value is None:
        assert check(forged, KEYS).outcome is Outcome.UNPROVEN
    else:
        assert is_found(json.dumps(forged).encode(), KEYS)


@pytest.mark.parametrize("key", [OTHER, LEAD])
def test_only_the_lead_signs_the_whole(key: Any) -> None:
    """A bundle that a participant signs in place of the lead is found."""
    expected = Outcome.VERIFIED if key is LEAD else Outcome.CHANGED
    assert check(signed_again(BUNDLE, key), KEYS).outcome is expected


def test_two_nodes_of_one_name_are_found() -> None:
    """A lead that calls a node of its own like another one cannot borrow that one's key."""

    def rename(forged: Bundle) -> None:
        forged["participants"][1]["name"] = "a"

    forged = signed_again(changed(BUNDLE, rename), LEAD)
    assert "participants: two nodes have one name" in check(forged, ConfirmedKeys()).changed


def test_announced_intervals_are_missed() -> None:
    """A lead that leaves out intervals which a participant announced in its part is noticed."""

    def leave_out(forged: Bundle) -> None:
        forged["intervals"][0]["shares"].pop()

    forged = changed(BUNDLE, leave_out)
    forged["parts"][1]["result"] = {"intervals": 1}
    [lack] = check(signed_again(forged, LEAD), KEYS).unproven
    assert lack.startswith("intervals of b: 1 of 1 that it announced are not here")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"", "not JSON"),
        (b"[1]", "object"),
        (b"\xff\xfe\x00", "not JSON"),
        (b'{"version":1,"version":1}', "has the member 'version' twice"),
        (b'{"version":NaN}', "NaN is no number"),
        (b"[" * 100_000, "not JSON"),
        (b'{"version":2}', "version"),
    ],
)
def test_what_is_no_bundle_is_refused(text: bytes, fault: str) -> None:
    """A file that is no bundle is refused with the reason, whatever it is."""
    with pytest.raises(InvalidDocument) as caught:
        parse_bundle(text)
    assert any(fault in f"{each.pointer} {each.detail}" for each in caught.value.faults)


@given(st.binary(max_size=300))
def test_any_other_file_is_refused(text: bytes) -> None:
    """No file makes the check fail with anything but its reason."""
    with pytest.raises(InvalidDocument):
        parse_bundle(text)


def test_differences_are_named_by_their_field() -> None:
    """A difference has the pointer of the deepest field, and both values."""
    before = {"a": [1, {"b/c": 2.0}], "d": True, "e": [1]}
    after = {"a": [1.0, {"b/c": 3}], "d": 1, "e": [1, 2], "f": None}
    assert [(each.field, each.bundle, each.replay) for each in differences(before, after)] == [
        ("/a/1/b~1c", 2.0, 3),
        ("/d", True, 1),
        ("/e", [1], [1, 2]),
        ("/f", "(absent)", None),
    ]
