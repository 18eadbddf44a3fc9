"""The SQL of this package by name."""

from __future__ import annotations

from pathlib import Path

from node.store.queries import parse_queries

SQL = parse_queries((Path(__file__).parent / "chaos.sql").read_text("utf-8"))
