"""Addresses to post to, as users write them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, StringConstraints


def _check_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        msg = "not an address such as https://collector.example/in"
        raise ValueError(msg)
    if parts.username is not None or parts.password is not None:
        msg = "must not contain a user or password, which would be shown; put them into headers"
        raise ValueError(msg)
    if parts.fragment or any(ord(letter) <= 0x20 for letter in value):  # noqa: PLR2004 - a blank
        msg = "must contain neither blanks nor a fragment"
        raise ValueError(msg)
    _ = parts.port  # raises ValueError if it is invalid
    return value


Url = Annotated[str, StringConstraints(max_length=2000), AfterValidator(_check_url)]
"""An address to post to, without user, password, blanks and fragment."""
