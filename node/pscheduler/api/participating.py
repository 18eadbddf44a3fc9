"""Calls of a foreign lead, whose tasks this node takes part in."""

from __future__ import annotations

from node.pscheduler.routing import Route

ROUTES: tuple[Route, ...] = ()
