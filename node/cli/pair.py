"""``parley pair``: how a pair of hosts is, by all tests between them, in both directions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import click

from node.cli.causes import (
    FIELDS,
    OVER,
    READ_MAX,
    WRONG,
    cause_lines,
    follow_up_lines,
    latest_follow_ups,
    read_runs,
    runs_by_cause,
)
from node.cli.listing import expected_members
from node.cli.options import options
from node.cli.outcomes import common_causes, common_lines, mark_of, outcome_text
from node.cli.output import (
    Column,
    OutputWriter,
    Record,
    RecordLayout,
    aligned_text,
    printable_text,
    readable_text,
)
from node.cli.references import short
from node.cli.results import figure_text
from node.cli.session import ReadingSession, reads_node
from node.cli.times import local_time_text
from node.model import times
from node.model.errors import NotFound
from node.model.moments import Moment
from node.model.similar import suggestion
from node.model.verdict import Level

_FIELDS = f"{FIELDS},summary,verdict,metrics"
_DAY_AGO = Moment(offset=-times.DAY)


def _delivered_text(pair: Record) -> str:
    return f"{pair['delivered']} of {pair['due']}"


def _cause_text(pair: Record) -> str:
    return str(pair["causes"][0]["example"] or "") if pair["causes"] else ""


PAIR = RecordLayout(
    "headline,due,delivered,latest_at,summary,verdicts,figures,causes,common,outcome.judgement,"
    "followed_by",
    Column("outcome", outcome_text, whole=True, optional=True),
    Column("what", lambda pair: pair["headline"]),
    Column("with a result", _delivered_text, whole=True),
    Column("latest", lambda pair: local_time_text(pair["latest_at"]), whole=True),
    Column("result", lambda pair: pair["summary"] or ""),
    Column("missing because", _cause_text),
    wide="run,verdicts",
    empty="No run between these two in that time. Look further back: --from -7d, or measure: "
    "parley rtt B",
)


FIGURE = RecordLayout("headline,due,delivered,latest_at,name,unit,latest,median,least,greatest")
"""The lines of CSV: a figure each."""


@click.command("pair")
@click.argument("hosts", metavar="[A] B", nargs=-1, required=True)
@options("--from TIME as starts  Beginning [-1d].", default=_DAY_AGO)
@options("--to TIME as ends  End [now].")
@options("--test TEXT  Only runs of this test.")
@reads_node
async def pair(
    session: ReadingSession,
    hosts: tuple[str, ...],
    starts: Moment,
    ends: Moment | None,
    test: str | None,
) -> None:
    """Show how the way between A (default: this node) and B is: all tests, both directions.

    \b
      parley pair a d                         # since yesterday
      parley pair b.example --from -7d --test latency
      parley pair a 192.0.2.7 -o json

    For each measurement it has how many runs have a result, the latest one, each figure with its
    median and its range in that time, and why runs have none. What the pair has in common with
    others that fail comes first. B may be any host.
    """  # noqa: D301 - click's mark for lines to keep
    if len(hosts) > len(("A", "B")):
        raise click.UsageError(f"a pair has two hosts, not {len(hosts)}")
    now = session.clock.now()
    nodes = (await session.reader.listed("/nodes", {})).items
    with expected_members():
        here = next((node["name"] for node in nodes if node["is_self"]), "")
        one, other = (here, *hosts)[-2:]
        addresses = {node["name"]: node["address"] for node in nodes}
    first, last = starts.at(now), (ends or Moment()).at(now)
    span = {
        "from": times.format_instant(first),
        "to": times.format_instant(last),
        "state": ",".join(OVER),
        "test": test,
        "fields": _FIELDS,
    }
    runs: dict[str, Record] = {}
    incomplete = False
    for source, dest in ((one, other), (other, one)):
        for target in dict.fromkeys(filter(None, (dest, addresses.get(dest)))):
            ends_of = {"participant": source, "target": target}
            found, more = await read_runs(session, {**span, **ends_of})
            runs |= {run["id"]: run for run in found}
            incomplete |= more
    known = {*addresses, *addresses.values()}
    if not runs and (unknown := [name for name in (one, other) if name not in known]):
        raise NotFound(_unknown_host_text(unknown[0], addresses))
    with expected_members():
        wrong = [run["task"] for run in runs.values() if run["outcome"]["judgement"] in WRONG]
        common = await common_causes(session.reader, wrong)
        heading = _heading((one, other), first, last)
        _print(session.output, pair_measurements(runs.values(), common), heading, common)
    if incomplete:
        note = f"Only the newest {READ_MAX} runs of each direction were read; choose a shorter time"
        session.progress.note(note)


def _unknown_host_text(name: str, nodes: Iterable[str]) -> str:
    return (
        f"{name} is no node known here, and nothing measured it in that time; "
        f"{suggestion(name, nodes)}"
    )


def _heading(ends: tuple[str, str], first: int, last: int) -> str:
    return printable_text(
        f"{' ⇄ '.join(ends)}, from {local_time_text(first)} to {local_time_text(last)}"
    )


def _print(
    output: OutputWriter, pairs: Sequence[Record], heading: str, common: Sequence[Record]
) -> None:
    if output.format == "csv":
        output.print_list(
            [{**pair, **figure} for pair in pairs for figure in pair["figures"]], FIGURE
        )
    elif output.format == "table" and pairs and not output.wide:
        top = "\n".join([heading, *common_lines(common)])
        output.print_text("\n\n".join([top, *map(pair_view, pairs)]))
    else:
        output.print_list(pairs, PAIR)


def pair_measurements(
    runs: Iterable[Record], common: Iterable[Record] = ()
) -> list[dict[str, Any]]:
    """Return a record for each headline among the runs: counts, causes, figures, by headline.

    ``common`` is what tasks that fail have in common; each record has what concerns its own.
    """
    sentences: defaultdict[str, list[str]] = defaultdict(list)
    for cause in common:
        for task in cause["tasks"]:
            sentences[task["task"]].append(cause["sentence"])
    groups: defaultdict[str, list[Record]] = defaultdict(list)
    for run in runs:
        groups[run["headline"]].append(run)
    return [
        _measurement_record(headline, groups[headline], sentences) for headline in sorted(groups)
    ]


def _measurement_record(
    headline: str, runs: Sequence[Record], common: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    finished = [run for run in runs if run["state"] == "finished"]
    newest = max(runs, key=lambda run: times.parse_instant(run["starts_at"]))
    finished.sort(key=lambda run: times.parse_instant(run["starts_at"]))
    latest = finished[-1] if finished else None
    return {
        "headline": headline,
        "test": runs[0]["test"],
        "due": sum(run["slots"] for run in runs),
        "delivered": len(finished),
        "outcome": newest["outcome"],
        "outcomes": dict(Counter(run["outcome"]["judgement"] for run in runs)),
        "verdicts": dict(Counter(run["verdict"] for run in finished if run["verdict"])),
        "run": latest and latest["id"],
        "latest_at": latest and latest["starts_at"],
        "summary": latest and latest["summary"],
        "figures": list(_figures(finished)),
        "causes": runs_by_cause(run for run in runs if run["outcome"]["judgement"] in WRONG),
        "common": list(dict.fromkeys(it for run in runs for it in common.get(run["task"], ()))),
        "followed_by": latest_follow_ups(runs),
    }


def _figures(finished: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Yield each figure of runs in their order: the latest value, the median, and the range.

    The latest value is that of the last run, and None if that has none.
    """
    courses: dict[tuple[str, ...], list[float]] = {}
    latest: dict[tuple[str, ...], float] = {}
    for run in finished:
        latest = {
            (each["name"], each["unit"], *each["labels"].values()): each["value"]
            for each in run["metrics"]
        }
        for key, value in latest.items():
            courses.setdefault(key, []).append(value)
    for key, values in courses.items():
        name, unit, *labels = key
        yield {
            "name": ".".join((name, *labels)),
            "unit": unit,
            "latest": latest.get(key),
            "median": median(values),
            "least": min(values),
            "greatest": max(values),
        }


def pair_view(pair: Record) -> str:
    """Describe one measurement of a pair for a person."""
    verdicts = pair["verdicts"].items()
    doubts = [f", {count} {level}" for level, count in verdicts if level != Level.CLEAN]
    head = f"{mark_of(pair)} {printable_text(pair['headline'])}: {_delivered_text(pair)}"
    lines = [f"{head} with a result{''.join(doubts)}"]
    if pair["run"]:
        latest = readable_text(pair["summary"] or "its lead has the result")
        lines.append(
            f"  latest {local_time_text(pair['latest_at'])}, run {short(pair['run'])}: {latest}"
        )
    if pair["figures"]:
        rows = [[_figure_name(each), *_values(each)] for each in pair["figures"]]
        lines.append(aligned_text([["", "latest", "median", "least", "greatest"], *rows], "    "))
    lines += cause_lines(pair["causes"], "  ")
    if not any(cause["followed_by"] for cause in pair["causes"]):
        lines += follow_up_lines(pair["followed_by"], "  ")
    return "\n".join(lines)


def _figure_name(figure: Record) -> str:
    name, _, labels = figure["name"].partition(".")
    words = name.removesuffix("_ms").removesuffix("_bps").replace("_", " ")
    return printable_text(f"{words} {labels.replace('_', ' ').replace('.', ' ')}".strip())


def _values(figure: Record) -> list[str]:
    return [
        "-"
        if figure[which] is None
        else figure_text(figure["name"].partition(".")[0], figure["unit"], figure[which])
        for which in ("latest", "median", "least", "greatest")
    ]
