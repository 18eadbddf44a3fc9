"""Reasons: each has a code, figures, and a sentence, which stands in one golden file."""

from __future__ import annotations

import copy
import importlib
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lead.model.reasons
import lead.planning
import lead.policy
import node.model.reasons
from lead.policy.verdict import RefusalRule
from node.model.errors import Conflict, PeerUnreachable, reason_at
from node.model.reason import Reason, ReasonKind
from node.model.reasons import no_time_free, time_has_passed, told
from node.model.times import SECOND

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "reasons.json").read_text("utf-8"))
"""One row or more for each code: the figures, and the sentence that they make."""
POLICIES = (lead.policy, lead.planning)
"""The packages of which modules have rules."""


def _makers() -> Iterator[tuple[str, Any]]:
    """Yield the code of each kind of reason and of each rule, and what makes reasons of it."""
    for catalogue in (node.model.reasons, lead.model.reasons):
        for each in vars(catalogue).values():
            if isinstance(each, ReasonKind):
                yield each.code, each
    rules = {
        id(each): each
        for package in POLICIES
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        for each in vars(importlib.import_module(module.name)).values()
        if isinstance(each, RefusalRule)
    }
    for rule in rules.values():
        yield rule.code, rule


MAKERS = dict(sorted(_makers()))


def _made(code: str, figures: dict[str, Any]) -> Reason:
    maker = MAKERS[code]
    made: Reason
    made = maker.refuse(**figures).reason if isinstance(maker, RefusalRule) else maker(**figures)
    return made


def test_every_code_is_given_once_and_has_a_sentence() -> None:
    """No two kinds of reasons share a code, and the golden file lacks none and has no other."""
    codes = [code for code, _ in _makers()]
    assert len(set(codes)) == len(codes)
    assert {row["code"] for row in GOLDEN} == set(codes)


def test_sentences_are_those_of_the_golden_file() -> None:
    """Figures make the sentence that people know, and stay with it."""
    made = [_made(row["code"], row["figures"]) for row in GOLDEN]
    told = [{"code": it.code, "figures": dict(it.figures), "sentence": it} for it in made]
    assert told == GOLDEN


def test_a_reason_may_be_that_of_somebody() -> None:
    """A name before the sentence changes neither code nor figures, and comes off again."""
    why = no_time_free(10 * SECOND, time_has_passed())
    at_a = why.at("a")
    assert at_a == "a: no 10 s free: the time asked for has passed or is too close"
    assert (at_a.code, at_a.figures) == ("no-time-free", {**why.figures, "at": "a"})
    assert at_a.of("b") is at_a
    assert (at_a.of("a"), at_a.of("a").figures) == (why, why.figures)
    assert why.of("a") is why


def test_the_first_of_several_reasons_decides() -> None:
    """Reasons beside each other have the code of the first, and remember the others."""
    why, other = told("no"), time_has_passed()
    both = why.beside(other)
    assert both == "no; the time asked for has passed or is too close"
    assert both.code == "told"
    [beside] = both.figures["beside"]
    assert beside.code == "time-has-passed"
    assert why.beside() is why


def test_a_copy_is_the_same_reason() -> None:
    """A record that is copied deeply, as for JSON, keeps code and figures."""
    why = no_time_free(10 * SECOND)
    copied = copy.deepcopy(why)
    assert (copied, copied.code, copied.figures) == (why, why.code, why.figures)


def test_an_error_has_a_reason() -> None:
    """The reason is the one it was raised with, or has the code of the error."""
    why = time_has_passed()
    assert Conflict(why).reason is why
    assert (str(Conflict(why)), Conflict(why).detail) == (why, why)
    plain = Conflict("it has ended").reason
    assert (plain, plain.code) == ("it has ended", "conflict")
    assert reason_at("b", Conflict(why)) == f"b: {why}"
    assert reason_at("b", PeerUnreachable("b cannot be reached")) == "b cannot be reached"
