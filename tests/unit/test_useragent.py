"""The name that targets are told, with whom to ask."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from node.model.useragent import user_agent
from node.runtime.settings import Settings


def test_the_contact_is_a_comment() -> None:
    """The name has the version, and in a comment the contact, if there is one."""
    assert user_agent("0.4.0", "noc@example.org") == "parley/0.4.0 (+noc@example.org)"
    assert user_agent("0.4.0", None) == "parley/0.4.0"


@pytest.mark.parametrize("contact", ["a b", "x)", "line\nbreak", "b\u00fc", "a" * 201, '"'])
def test_a_contact_breaks_no_header(contact: str) -> None:
    """A contact that would end the comment or the header is refused."""
    with pytest.raises(ValidationError, match="is told to targets"):
        Settings(contact=contact)


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"url": "https://a.example:8642"}, "https://a.example:8642"),
        ({"url": "https://a.example:8642", "contact": "noc@a.example"}, "noc@a.example"),
        ({"url": "http://127.0.0.1:8642", "plain_http": True}, None),
    ],
)
def test_without_a_contact_it_is_the_url(settings: dict[str, Any], shown: str | None) -> None:
    """The contact is the setting, or else the URL of the node, if others reach that."""
    assert Settings(**settings).shown_contact == shown
