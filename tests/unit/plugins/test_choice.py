"""Explanations of why a task uses its tool."""

from __future__ import annotations

from typing import Any

import pytest

from node.plugins.choice import ToolOffer, explain_choice
from tests.unit.plugins.parts import spec

ALL = ("scamper", "traceroute", "mtr", "tracepath")
NO_SCAMPER = {"scamper": "scamper is not installed; apt install scamper"}


@pytest.mark.parametrize(
    ("chosen", "asked", "fields", "others", "sentence"),
    [
        ("scamper", (), {}, [ToolOffer("c", accepted=True, tools=ALL)], "the best tool for trace"),
        (
            "mtr",
            ("mtr", "scamper"),
            {},
            [ToolOffer("c", accepted=True, tools=ALL)],
            "the first of those requested",
        ),
        ("mtr", ("mtr",), {}, [ToolOffer("c", accepted=True, tools=("mtr",))], "requested"),
        (
            "traceroute",
            (),
            {},
            [
                ToolOffer("b", accepted=True, tools=ALL),
                ToolOffer("c", accepted=True, tools=ALL[1:], lacks=NO_SCAMPER),
            ],
            "scamper is better, but c: scamper is not installed; apt install scamper",
        ),
        (
            "mtr",
            ("tracepath", "mtr"),
            {"protocol": "tcp"},
            [ToolOffer("c", accepted=True, tools=ALL)],
            "tracepath is requested before it, but tracepath cannot send TCP",
        ),
        (
            "traceroute",
            (),
            {},
            [ToolOffer("c", accepted=True, tools=ALL[1:])],
            "scamper is better, but c: does not offer it",
        ),
        (
            "traceroute",
            (),
            {},
            [ToolOffer("c", accepted=None, tools=())],
            "scamper is better, but c had not answered",
        ),
        (
            "traceroute",
            (),
            {},
            [ToolOffer("c", accepted=True, tools=ALL)],
            "scamper is better, but all participants have it now; edit the task to use it",
        ),
        ("scamper", ("mtr",), {}, [], "was chosen when other tools were known or requested"),
    ],
)
def test_a_choice_is_explained(
    chosen: str,
    asked: tuple[str, ...],
    fields: dict[str, Any],
    others: list[ToolOffer],
    sentence: str,
) -> None:
    """The explanation says why each better tool was not chosen."""
    assert explain_choice("trace", chosen, asked, spec("trace", **fields), others) == sentence


def test_the_only_tool() -> None:
    """The explanation says if there is only one tool."""
    assert explain_choice("idle", "sleep", (), spec("idle"), []) == "the only tool for idle"
