"""Answer the worked cases of the policies: ``python -m tests.golden.answer FILE.json``.

Reads a list of cases and prints ``[{"id": …, "answer": …}]``. A translator per system turns the
input of a case into arguments of the product's functions, and their results into the terms of the
case. It decides nothing and never reads the expectation. Cases without a translator are listed on
stderr; the others are answered nevertheless.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.golden import boinc, fbsng, gridserver, maui, pscheduler

Case = dict[str, Any]

TRANSLATORS: dict[str, Callable[[Case], Any]] = {
    "boinc": boinc.answer,
    "fbsng": fbsng.answer,
    "gridserver": gridserver.answer,
    "maui": maui.answer,
    "pscheduler": pscheduler.answer,
}
"""The translators by system; another system is one more module and one more line here."""


def answers(cases: list[Case]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the answers, and a sentence for every case without one."""
    answered: list[dict[str, Any]] = []
    faults: list[str] = []
    unknown: dict[str, list[str]] = {}
    for case in cases:
        translator = TRANSLATORS.get(case["system"])
        if translator is None:
            unknown.setdefault(case["system"], []).append(case["id"])
            continue
        question = {key: value for key, value in case.items() if key != "expect"}
        try:
            answered.append({"id": case["id"], "answer": translator(question)})
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            faults.append(f"{case['id']} cannot be read as a case: {error!r}")
    known = ", ".join(sorted(TRANSLATORS))
    for system, ids in unknown.items():
        faults.append(
            f"cases of the system {system} are not answered by this version, only those of "
            f"{known}: {', '.join(ids)}"
        )
    return answered, faults


def main(arguments: list[str]) -> int:
    """Answer the cases of one file; return the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tests.golden.answer FILE.json\n")
        return 2
    answered, faults = answers(json.loads(Path(arguments[0]).read_text("utf-8")))
    sys.stdout.write(json.dumps(answered, indent=1) + "\n")
    sys.stderr.writelines(f"{sentence}\n" for sentence in faults)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
