"""The views of the database, with the descriptions that the database has."""

from __future__ import annotations

import re
from pathlib import Path

from docs.generator.markdown import code, plain, table

_SCHEMA = Path(__file__).parents[2] / "schema.sql"
_GRANT = re.compile(r"GRANT SELECT ON ([\w,\s]+) TO parley_reader")
_COMMENT = re.compile(r"COMMENT ON VIEW (\w+) IS\s+'((?:[^']|'')*)'")


def views_table() -> str:
    """Return the table of the views that ``parley_reader`` may read."""
    text = _SCHEMA.read_text(encoding="utf-8")
    readable = re.split(r",\s*", _GRANT.findall(text)[0].strip())
    described = dict(_COMMENT.findall(text))
    rows = (
        (code(name), plain(" ".join(described.get(name, "").replace("''", "'").split())))
        for name in readable
    )
    return table(("view", ""), rows)
