"""The figures of a result that cannot be true, whatever it measured."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from node.plugins.plausibility import RATE_MAX_BPS

_DAY_MS = 86_400_000


def impossible(result: Any, path: str = "") -> Iterator[str]:
    """Yield the figures that cannot be true, by their names and units."""
    if isinstance(result, Mapping):
        for name, value in result.items():
            yield from impossible(value, f"{path}.{name}")
        yield from unlike(result, path)
    elif isinstance(result, list):
        for value in result:
            yield from impossible(value, path)
    elif isinstance(result, int | float) and not SIGNED.search(path):
        most = RATE_MAX_BPS if path.endswith("rate_bps") else math.inf
        most = _DAY_MS if re.search(r"_ms(\.\w+)?$", path) else most
        if not 0 <= result <= most or not math.isfinite(result):
            yield f"{path} is {result}"


SIGNED = re.compile(r"\.(forward|backward|clocks?|offset\w*|days_left)\b")
"""Figures that may be below zero: they compare two clocks, or tell of the past."""

ORDERS = (("min", "mean", "max"), ("min", "median", "max"), ("min", "p95", "max"))
BOUNDS = (
    ("lost", "packets"),
    ("received", "sent"),
    ("received_back", "sent"),
    ("out_of_order", "packets"),
)


def unlike(figures: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the figures of one object that contradict each other."""
    for names in (*ORDERS, *BOUNDS):
        values = [figures[name] for name in names if isinstance(figures.get(name), int | float)]
        if len(values) == len(names) and values != sorted(values):
            yield f"{path}: {names} are {values}"
    if {"packets", "lost", "loss"} <= figures.keys() and figures["packets"]:
        share = figures["lost"] / figures["packets"]
        if not math.isclose(share, figures["loss"], abs_tol=1e-5):
            yield f"{path}: loss is {figures['loss']}, not {share}"
    if {"bytes", "duration_ms", "rate_bps"} <= figures.keys():
        bits = figures["rate_bps"] * figures["duration_ms"] / 1000
        if not math.isclose(bits, figures["bytes"] * 8, rel_tol=0.1, abs_tol=20_000):
            yield f"{path}: {figures} is no rate"
