"""Checks a bundle with public keys alone: who signed what, and what was changed since. Pure.

A bundle comes from its lead, which is not trusted: it may have changed what the participants
reported. The keys in it prove nothing by themselves, because whoever made the file can have made
them; they count once somebody confirms that they are those of the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from node.model.canonical import canonical, whole_number
from node.model.errors import FieldFault, InvalidDocument
from node.model.runstate import RunState
from node.model.unique_json import parse_json
from node.model.wire.bundles import RunBundle
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.validation import faults_of
from node.trust.run_statements import PART_VALUES, SHARE_VALUES, SignedRun, check_signed
from node.trust.statements import (
    InvalidStatementError,
    Statement,
    StatementKind,
    read_statement,
)

MERGED = frozenset({RunState.FINISHED, RunState.FAILED})
"""States in which a lead has merged the parts: every participant should have sent its own."""

_DEEPER = 32

Bundle = Mapping[str, Any]
"""A bundle as parsed from its file."""


class Outcome(StrEnum):
    """The overall finding of a check."""

    VERIFIED = "verified"
    """Everything is signed, by keys that were confirmed, and nothing was changed."""
    UNPROVEN = "unproven"
    """Nothing was changed, but something is not signed, or by a key that nobody confirmed."""
    CHANGED = "changed"
    """Something is not what was signed."""


@dataclass(frozen=True)
class Signature:
    """A valid signature: what it is on, by whom and when, and whether the key was confirmed."""

    subject: str
    name: str
    identity: str
    signed_at: str | None
    confirmed: bool


@dataclass
class Verification:
    """The findings of a check: valid signatures, what was changed, and what is not proven."""

    signatures: list[Signature] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        """The overall finding."""
        if self.changed:
            return Outcome.CHANGED
        return Outcome.UNPROVEN if self.unproven else Outcome.VERIFIED


@dataclass(frozen=True)
class ConfirmedKeys:
    """The keys that somebody vouches for: by the name of a node in the bundle, or of any node."""

    by_name: Mapping[str, str] = field(default_factory=dict)
    known: frozenset[str] = frozenset()

    def confirms(self, name: str, identity: str) -> bool:
        """Return whether this is the key of the node of this name."""
        return (
            self.by_name.get(name) == identity if name in self.by_name else identity in self.known
        )

    def contradicts(self, name: str, identity: str) -> bool:
        """Return whether the node of this name has another key."""
        return self.by_name.get(name, identity) != identity


def parse_bundle(text: bytes) -> dict[str, Any]:
    """Return the document in a file.

    :raises InvalidDocument: it is no bundle; with a pointer to each fault.
    """
    try:
        document = parse_json(text, parse_constant=_refuse_number, parse_int=whole_number)
        canonical(_nested(document))
    except (ValueError, RecursionError) as error:
        raise InvalidDocument([FieldFault("", f"it is not JSON as a bundle is: {error}")]) from None
    try:
        RunBundle.model_validate(document, context=FROM_OUTSIDE)
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, RunBundle)) from None
    return dict(document)


def check_bundle(bundle: Bundle, keys: ConfirmedKeys) -> Verification:
    """Check every signature of a bundle (:func:`parse_bundle`)."""
    found = Verification()
    _check_names(bundle, keys, found)
    _check_whole(bundle, keys, found)
    _check_parts(bundle, keys, found)
    _check_intervals(bundle, keys, found)
    return found


def names_in(bundle: Bundle) -> frozenset[str]:
    """Return the names of the nodes in a bundle."""
    return frozenset(each["name"] for each in (bundle["made"], *bundle["participants"]))


def _check_names(bundle: Bundle, keys: ConfirmedKeys, found: Verification) -> None:
    lead = bundle["made"]
    for each in (lead, *bundle["participants"]):
        if keys.contradicts(each["name"], each["node"]):
            what = f"{each['name']}: its key is {each['node']} in the bundle, not the one given"
            if what not in found.changed:
                found.changed.append(what)
    pairs = {(each["name"], each["node"]) for each in (lead, *bundle["participants"])}
    if len({name for name, _ in pairs}) != len(pairs):
        found.changed.append("participants: two nodes have one name")


def _check_whole(bundle: Bundle, keys: ConfirmedKeys, found: Verification) -> None:
    """Check what the lead signed: everything but its own signature."""
    made = bundle["made"]
    members = {name: value for name, value in bundle.items() if name != "signature"}
    try:
        statement = read_statement(bundle["signature"], StatementKind.BUNDLE)
    except InvalidStatementError as error:
        found.changed.append(f"bundle: {error}")
        return
    if statement.identity != made["node"]:
        found.changed.append(
            f"bundle: it is signed with {statement.identity}, not with the key of {made['name']}"
        )
        return
    if changed := statement.changed_names(members):
        found.changed += [f"bundle: {name} is not what {made['name']} signed" for name in changed]
        return
    _record_signature(found, keys, "bundle", made["name"], statement, made["at"])


def _check_parts(bundle: Bundle, keys: ConfirmedKeys, found: Verification) -> None:
    places = [part["participant"] for part in bundle["parts"]]
    for place in sorted({place for place in places if places.count(place) > 1}):
        found.changed.append(f"parts: participant {place} has several")
    for part in bundle["parts"]:
        subject = f"part of {_name(bundle, part['participant'])}"
        values = {name: part[name] for name in PART_VALUES}
        _check_one(bundle, part, values, keys, found, subject)
    if bundle["outcome"]["state"] in MERGED:
        for place, participant in enumerate(bundle["participants"]):
            if place not in places:
                found.unproven.append(
                    f"part of {participant['name']}: not here; that there is none is only what "
                    f"{bundle['made']['name']} says"
                )


def _check_intervals(bundle: Bundle, keys: ConfirmedKeys, found: Verification) -> None:
    numbers = [interval["number"] for interval in bundle["intervals"]]
    if len(set(numbers)) != len(numbers):
        found.changed.append("intervals: a number occurs twice")
    have: dict[int, set[int]] = {}
    for interval in bundle["intervals"]:
        for share in interval["shares"]:
            place, number = share["participant"], interval["number"]
            if number in have.setdefault(place, set()):
                found.changed.append(f"interval {number}: participant {place} has several shares")
            have[place].add(number)
            subject = f"interval {number} of {_name(bundle, place)}"
            values = {name: share[name] for name in SHARE_VALUES}
            _check_one(bundle, share, values, keys, found, subject, number)
    for part in bundle["parts"]:
        told = (part["result"] or {}).get("intervals")
        if not bundle["intervals"] or not isinstance(told, int):
            continue
        lacking = set(range(min(told, len(numbers)))) - have.get(part["participant"], set())
        if lacking:
            found.unproven.append(
                f"intervals of {_name(bundle, part['participant'])}: {len(lacking)} of {told} that "
                f"it announced are not here, the first is number {min(lacking)}"
            )


def _check_one(  # noqa: PLR0913, PLR0917 - a signature, its subject, and what it is checked with
    bundle: Bundle,
    signed: Bundle,
    values: Mapping[str, Any],
    keys: ConfirmedKeys,
    found: Verification,
    subject: str,
    interval: int | None = None,
) -> None:
    """Check the statement of a participant about its part, or its share of an interval."""
    place = signed["participant"]
    if not 0 <= place < len(bundle["participants"]):
        found.changed.append(f"{subject}: the run has no such participant")
        return
    name, node = (bundle["participants"][place][key] for key in ("name", "node"))
    if signed["signature"] is None:
        found.unproven.append(f"{subject}: not signed")
        return
    lead, run = bundle["made"]["node"], bundle["run"]["id"]
    try:
        statement = check_signed(
            signed["signature"],
            values,
            run=run,
            lead=lead,
            participant=place,
            node=node,
            interval=interval,
        )
    except InvalidStatementError as error:
        found.changed.append(f"{subject}: {error}")
        return
    if unlike := _facts(bundle).unlike(statement):
        found.changed.append(f"{subject}: {name} signed for another {' and '.join(unlike)}")
        return
    _record_signature(found, keys, subject, name, statement, statement.claims.get("signed_at"))


def _record_signature(
    found: Verification,
    keys: ConfirmedKeys,
    subject: str,
    name: str,
    statement: Statement,
    signed_at: str | None,
) -> None:
    confirmed = keys.confirms(name, statement.identity)
    signature = Signature(subject, name, statement.identity, signed_at, confirmed)
    found.signatures.append(signature)
    if not confirmed and not keys.contradicts(name, statement.identity):
        found.unproven.append(
            f"{subject}: signed by {statement.identity}, which you have not confirmed"
        )


def _facts(bundle: Bundle) -> SignedRun:
    run = bundle["run"]
    return SignedRun(
        run=run["id"],
        task=bundle["task"]["id"],
        revision=bundle["task"]["revision"],
        lead=bundle["made"]["node"],
        test=run["test"],
        tool=run["tool"],
        starts_at=run["starts_at"],
        ends_at=run["ends_at"],
        spec=run["spec"],
        participants=[[each["node"], each["context"]] for each in bundle["participants"]],
    )


def _name(bundle: Bundle, place: int) -> str:
    participants = bundle["participants"]
    return str(participants[place]["name"] if 0 <= place < len(participants) else place)


def _nested(document: Any) -> Any:
    """Nest a document deeper than where its values are checked, so that no check fails later."""
    for _ in range(_DEEPER):
        document = [document]
    return document


def _refuse_number(text: str) -> None:
    msg = f"{text} is no number in JSON"
    raise ValueError(msg)
