"""The drawing of a pool that was played: node by node who measured when, by campaign. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lead.pool.rehearsal.world import Placement
from lead.simulation.clock import START
from lead.simulation.pool_file import PoolFile
from lead.simulation.svg import Scale, document, group, label, line, rectangle
from node.model import times

WIDTH = 900
_LEFT = 60
_ROW = 26
_SHADES = ("strong", "late", "soft", "medium", "good", "bad")
_HEAD = 58


def draw_pool(file: PoolFile, played: Sequence[tuple[str, Sequence[Placement]]]) -> str:
    """Return the drawing of a pool under one or several policies, each with its name."""
    height = _HEAD + _ROW * file.nodes + 30
    panels = [
        group(*_panel(file, name, placements), y=number * height)
        for number, (name, placements) in enumerate(played)
    ]
    return document(WIDTH, height * len(played), file.title, *panels)


def _panel(file: PoolFile, name: str, placements: Sequence[Placement]) -> list[str]:
    names = [campaign.name for campaign in file.campaigns]
    shades = {name: _SHADES[place % len(_SHADES)] for place, name in enumerate(names)}
    scale = Scale(START, START + file.hours * times.HOUR, _LEFT, WIDTH - 20)
    parts = [label(_LEFT, 20, name, "ink heading")]
    x = float(_LEFT)
    for campaign in names:
        parts += [rectangle(x, 32, 10, 10, shades[campaign]), label(x + 15, 41, campaign)]
        x += 45 + 7 * len(campaign)
    bottom = _HEAD + _ROW * file.nodes
    for hour in range(file.hours + 1):
        at = scale(START + hour * times.HOUR)
        parts += [
            line(at, _HEAD - 6, at, bottom),
            label(at, bottom + 16, f"{hour} h", text_anchor="middle"),
        ]
    for row in range(1, file.nodes + 1):
        parts.append(label(_LEFT - 10, _HEAD + _ROW * row - 9, f"n{row}", text_anchor="end"))
    for placed in placements:
        start, end = scale(placed.run.start), scale(placed.run.end)
        for node in placed.run.nodes:
            top = _HEAD + _ROW * (int(node[1:]) - 1)
            shade = shades[placed.run.campaign]
            parts.append(rectangle(start, top, max(1.0, end - start - 0.6), _ROW - 6, shade))
    return parts
