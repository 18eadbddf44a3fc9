"""Errors as pScheduler tells them: a status and lines of text, which its command line prints."""

from __future__ import annotations

BAD_REQUEST = 400
CANNOT_DO = 422


class Refusal(Exception):
    """A request that is answered with this status and this text, as ``text/plain``.

    It is not in the tree of :mod:`node.model.errors`, because it never becomes a problem document.
    ``text`` is what a person reads: one line, or several for the help of an option parser.
    """

    def __init__(self, status: int, text: str) -> None:
        """Refuse with this status and text."""
        super().__init__(text)
        self.status = status
        self.text = text


def invalid(text: str) -> Refusal:
    """Return the refusal of a request that is wrong in itself (400)."""
    return Refusal(BAD_REQUEST, text)


def impossible(text: str) -> Refusal:
    """Return the refusal of a request that is right, but that nothing here can do (422)."""
    return Refusal(CANNOT_DO, text)
