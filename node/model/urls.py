"""URLs as others write them: in parts, or none at all. Pure.

``urllib`` raises ``ValueError`` for some texts, at the split or only when the port is looked at.
What comes from outside is split here, so that a wrong one is a fault of a field like any other.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def split_url(url: str) -> SplitResult | None:
    """Return the parts of a URL with a host and no impossible port; None if it is none.

    >>> split_url("http://[::1") is None
    True
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises an error of its own
    except ValueError:
        return None
    return parts if parts.hostname else None
