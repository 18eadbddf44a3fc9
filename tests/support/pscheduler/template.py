"""A template of psConfig for two hosts, which measure the round trip to each other."""

from __future__ import annotations

from typing import Any


def template_of(a: str, x: str) -> dict[str, Any]:
    """Return the template; the hosts are called a and x in it, and have these addresses."""
    return {
        "addresses": {"a": {"address": a}, "x": {"address": x}},
        "groups": {"all": {"type": "mesh", "addresses": [{"name": "a"}, {"name": "x"}]}},
        "tests": {
            "ping": {
                "type": "rtt",
                "spec": {"source": "{% address[0] %}", "dest": "{% address[1] %}"},
            }
        },
        "schedules": {"seldom": {"repeat": "PT6H", "slip": "PT1H"}},
        "tasks": {"pings": {"group": "all", "test": "ping", "schedule": "seldom"}},
    }
