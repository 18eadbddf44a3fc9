"""The counted resources that runs need. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from lead.policy.view import Needs
from node.model.errors import ParleyError

NeedsOf = Callable[[str, dict[str, Any]], Mapping[str, int | None]]
"""``needs(test, spec)`` returns the counted resources of a run; None is all that a node has."""

_TESTS_MAX = 10_000


class NeedsByTest:
    """The counted resources that runs need, computed once for equal tests."""

    def __init__(self, needs_of: NeedsOf) -> None:
        """``needs_of(test, spec)`` computes them."""
        self._needs_of = needs_of
        self._needs: dict[str, Needs] = {}

    def of(self, test: str, spec: dict[str, Any]) -> Needs:
        """Return what runs of a test need; nothing if the test is not installed here any more."""
        key = json.dumps([test, spec])
        needs = self._needs.get(key)
        if needs is None:
            try:
                needs = self._needs_of(test, spec)
            except ParleyError:
                return {}
            if len(self._needs) >= _TESTS_MAX:
                self._needs.clear()
            self._needs[key] = needs
        return needs
