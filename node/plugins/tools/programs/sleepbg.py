"""Sleeps from an instant on, and tells after each interval how long it slept.

``sleepbg.py '{"begin_ns": …, "each_ns": 1000000000, "intervals": 5}'``, see :func:`measure`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Sleep through the intervals.

    Arguments: ``begin_ns`` (the agreed start by the wall clock), ``each_ns``, ``intervals``.
    Records: ``slept_ns`` of one interval. Result: ``intervals``, the number of records.
    """
    begin_ns = arguments["begin_ns"] + time.monotonic_ns() - time.time_ns()
    stamp_endpoint.sleep_until(begin_ns)
    before_ns = time.monotonic_ns()
    for number in range(arguments["intervals"]):
        stamp_endpoint.sleep_until(begin_ns + (number + 1) * arguments["each_ns"])
        now_ns = time.monotonic_ns()
        stamp_endpoint.record({"interval": number, "slept_ns": now_ns - before_ns})
        before_ns = now_ns
    return {"intervals": arguments["intervals"]}


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure))
