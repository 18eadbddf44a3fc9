"""Comparison of answers with expectations: numbers within the tolerance of the case."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.golden.answer import answers

POLICIES = Path(__file__).parent / "policies"
_ROUNDING = 1e-6


def cases(system: str) -> dict[str, dict[str, Any]]:
    """Return the worked cases of one system by their ids."""
    return {case["id"]: case for case in json.loads((POLICIES / f"{system}.json").read_text())}


def answered(case: dict[str, Any]) -> Any:
    """Return the answer to one case."""
    [result], faults = answers([case])
    assert faults == []
    return result["answer"]


def differences(actual: Any, expected: Any, tolerance: float = _ROUNDING) -> Iterator[str]:
    """Yield the differences between an answer and its expectation."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        within = expected.get("tolerance", tolerance)
        pairs = {key: value for key, value in expected.items() if key != "tolerance"}
        yield from (f"there is no {key}" for key in pairs.keys() - actual.keys())
        yield from (f"{key} is not expected" for key in actual.keys() - pairs.keys())
        for key in pairs.keys() & actual.keys():
            yield from (f"{key}: {it}" for it in differences(actual[key], pairs[key], within))
    elif isinstance(expected, list) and isinstance(actual, list) and len(actual) == len(expected):
        for place, (item, other) in enumerate(zip(actual, expected, strict=True)):
            yield from (f"{place}: {it}" for it in differences(item, other, tolerance))
    elif not _same(actual, expected, tolerance):
        yield f"{actual} instead of {expected}"


def _same(actual: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, int | float) and isinstance(actual, int | float):
        return abs(actual - expected) <= tolerance
    return bool(actual == expected)
