"""What a node's owner can set."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from node.settings import Settings


def test_a_node_is_reached_or_fetches() -> None:
    """Where a node is reached and that nobody reaches it cannot both be said."""
    with pytest.raises(ValidationError, match="give one or the other"):
        Settings(pull=True, url="http://a.example:8642")
    assert Settings(pull=True).url is None


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
    """Whatever the API listens on, there is an address for it on the host itself."""
    assert Settings(listen=listen).local_url == local
