"""Comparing answers with what cases expect: numbers within the tolerance that a case gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.golden.answer import answers

POLICIES = Path(__file__).parent / "policies"
_ROUNDING = 1e-6


def cases(system: str) -> dict[str, dict[str, Any]]:
    """The worked cases of one system by their ids."""
    return {case["id"]: case for case in json.loads((POLICIES / f"{system}.json").read_text())}


def answered(case: dict[str, Any]) -> Any:
    """The answer to one case."""
    [found], faults = answers([case])
    assert faults == []
    return found["answer"]


def differences(found: Any, expected: Any, tolerance: float = _ROUNDING) -> Iterator[str]:
    """Where an answer is not what is expected, each in a few words."""
    if isinstance(expected, dict) and isinstance(found, dict):
        within = expected.get("tolerance", tolerance)
        pairs = {key: value for key, value in expected.items() if key != "tolerance"}
        yield from (f"there is no {key}" for key in pairs.keys() - found.keys())
        yield from (f"{key} was not asked for" for key in found.keys() - pairs.keys())
        for key in pairs.keys() & found.keys():
            yield from (f"{key}: {it}" for it in differences(found[key], pairs[key], within))
    elif isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from (f"{place}: {it}" for it in differences(one, other, tolerance))
    elif not _same(found, expected, tolerance):
        yield f"{found} instead of {expected}"


def _same(found: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return abs(found - expected) <= tolerance
    return bool(found == expected)
