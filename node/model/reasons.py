"""The reasons that a node gives, with the sentence of each. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from node.model.classes import SchedulingClass
from node.model.reason import Reason, reason
from node.model.times import SECOND, format_duration, to_the_second

# -- time that a node has not ----------------------------------------------------------------------


@reason
def told(sentence: str) -> str:
    return sentence


@reason
def no_time_free(duration: int, because: Reason | None = None) -> str:
    needed = f"no {format_duration(duration)} free"
    return needed if because is None else f"{needed}: {because}"


@reason
def time_has_passed() -> str:
    return "the time asked for has passed or is too close"


@reason
def beyond_horizon(horizon: int) -> str:
    return f"beyond this node's horizon, {to_the_second(horizon)}"


@reason
def busy(
    scheduling_class: SchedulingClass,
    start: int,
    end: int,
    test: str | None = None,
    priority: int | None = None,
) -> str:
    return f"busy with {_run_text(scheduling_class, start, end, test, priority)}"


@reason
def just_taken(
    scheduling_class: SchedulingClass,
    start: int,
    end: int,
    test: str | None = None,
    priority: int | None = None,
) -> str:
    return f"its time was just taken by {_run_text(scheduling_class, start, end, test, priority)}"


@reason
def reserved(kind: str, name: str, owner: str, reservation: UUID | str, ends_at: int) -> str:
    title = f"{_TITLES.get(kind, kind)} '{name}' by {owner}"
    return f"reserved for {title} until {to_the_second(ends_at)}, reservation {reservation}"


@reason
def lead_above_share(percent: float, later: int) -> str:
    return f"this lead is above its share of {percent:g} % here; later, from {to_the_second(later)}"


@reason
def displaced_by_reservation(why: Reason, pool: str | None = None) -> str:
    return f"displaced by a reservation{'' if pool is None else f' of pool {pool}'}: {why}"


@reason
def host_limit(sentence: str, rule: str | None) -> str:  # noqa: ARG001 - a figure
    return sentence


@reason
def campaign_limit(sentence: str, campaign: str) -> str:  # noqa: ARG001 - a figure
    return sentence


# -- nodes that cannot have a seat -----------------------------------------------------------------


@reason
def attribute_unfit(there: str, whose: str, condition: str) -> str:
    return f"{there}, and {whose} asks for {condition}"


@reason
def takes_part_already() -> str:
    return "takes part in it already"


@reason
def lacks_tools(tools: Sequence[str]) -> str:
    return f"has none of the tools for it: {', '.join(tools)}"


@reason
def silent(since: int, error: str | None) -> str:
    text = f"has not answered since {to_the_second(since)}"
    return f"{text}: {error}" if error else text


# -- slots that nobody planned in time -------------------------------------------------------------


@reason
def windows_over() -> str:
    return "their windows were over before they could be planned"


@reason
def slots_given_up(count: int, since: int | None) -> str:
    first = "" if since is None else f" from {to_the_second(since)} on"
    return f"{count} given up{first}: the window is over"


# -- limits of the host ----------------------------------------------------------------------------


@reason
def limit_refuses(rule: str | None, detail: str, allowed: str | None = None) -> str:
    whose = "limits of this host" if rule is None else f"limit '{rule}'"
    return f"{whose}: {detail}{'' if allowed is None else f'; allowed: {allowed}'}"


@reason
def limit_used_up(limit: str, used: str, most: str, free_at: int) -> str:
    return f"limit '{limit}': {used} of {most} used, free again from {to_the_second(free_at)}"


@reason
def limit_of_rate_used(limit: str, rate: str, free_at: int) -> str:
    free = f"free again from {to_the_second(free_at)}"
    return f"limit '{limit}': {rate} at one time used, {free}"


@reason
def limit_of_runs_at_once_reached(limit: str, most: int, free_at: int) -> str:
    free = f"free again from {to_the_second(free_at)}"
    return f"limit '{limit}': {most} of {most} runs at once, {free}"


@reason
def closed_by_limit(limit: str, opens_at: int) -> str:
    opens = f"open again from {to_the_second(opens_at)}"
    return f"limit '{limit}': it admits no runs at this time; {opens}"


@reason
def limit_of_tasks_reached(limit: str, user: str, count: int, most: int) -> str:
    return (
        f"limit '{limit}': {user} has {count} of {most} open tasks here; cancel some, or ask again "
        "later"
    )


@reason
def cap_of_tasks_reached(limit: str, count: int, most: int, *, together: bool) -> str:
    who = "the nodes for which it counts have" if together else "it has"
    return f"limit '{limit}': {who} {count} of {most} open tasks here; end some, or ask again later"


@reason
def cap_reached(limit: str, most: str, network: str) -> str:
    return f"limit '{limit}': no more than {most} to {network}"


# -- holds that are refused ------------------------------------------------------------------------


@reason
def start_has_passed() -> str:
    return "its start has passed"


@reason
def ends_beyond_horizon(horizon: int) -> str:
    return f"it ends beyond this node's horizon, {to_the_second(horizon)}"


@reason
def taken_a_moment_ago() -> str:
    return "its time was taken a moment ago"


@reason
def time_is_closed(why: Reason) -> str:
    return f"its time is {why}"


# -- parts of runs that were not measured, or not begun --------------------------------------------


@reason
def run_cancelled() -> str:
    return "cancelled"


@reason
def track_lost() -> str:
    return "this node lost track of its part"


@reason
def restarted_meanwhile() -> str:
    return "the node was restarted during the run"


@reason
def stopped_meanwhile() -> str:
    return "the node was stopped during the run"


@reason
def started_too_late(late: int) -> str:
    return f"could not be started in time: {late / SECOND:.1f} s late"


@reason
def down_at_start(back_at: int) -> str:
    return f"the node was down at its start and came back at {to_the_second(back_at)}"


@reason
def not_begun_before(noticed_at: int) -> str:
    return f"the node had not begun it at {to_the_second(noticed_at)}"


@reason
def not_measured_or_forgotten(why: Reason) -> str:
    return f"{why}, or measured it and forgot that when its database was restored from a backup"


@reason
def not_begun_yet(starts_at: int, now: int) -> str:
    return (
        f"it begins at {to_the_second(starts_at)}, and here it is {to_the_second(now)}; no part of "
        "it is taken yet: compare the clocks"
    )


@reason
def booking_unconfirmed(names: Sequence[str]) -> str:
    return f"{' and '.join(names)} did not confirm in time that it has this run"


@reason
def program_not_begun() -> str:
    return "its program could not be begun"


@reason
def tool_was_killed(tool: str, why: str) -> str:
    return f"{tool} was killed: it {why}"


@reason
def plugin_failed(plugin: str, error: str) -> str:
    return f"the {plugin} plugin failed: {error}"


@reason
def plugin_at_fault(plugin: str, fault: str) -> str:
    return f"the {plugin} plugin {fault}"


@reason
def result_not_kept() -> str:
    return "its result could not be kept; the log of the node has the details"


# -- parts that others were to measure, or confirm -------------------------------------------------


@reason
def no_part_in_time() -> str:
    return "sent no part in time"


@reason
def no_share_in_time() -> str:
    return "did not report it in time"


@reason
def part_refused(why: str) -> str:
    return f"its part was refused: {why}"


@reason
def nothing_measured(gap: str | None) -> str:
    return f"nothing was measured: {gap}" if gap else "nothing was measured"


@reason
def spec_invalid_here(detail: str) -> str:
    return f"the spec is not valid for this program's version: {detail}"


@reason
def no_intervals_of_test(test: str) -> str:
    return f"this version has no test {test} with intervals, or refuses its spec"


@reason
def port_not_as_stated(name: str, stated: int, port: int) -> str:
    return (
        f"the task states the port {stated}, and {name} does not listen there for it, but at {port}"
    )


@reason
def part_unconfirmed(why: Reason) -> str:
    return (
        f"{why}; a task of another node sends nothing to it unless it confirms that it takes part"
    )


@reason
def confirmation_late() -> str:
    return "it did not say in time whether it takes part"


@reason
def run_not_booked_there(name: str) -> str:
    return f"{name} has not booked this run, so nothing is sent to it for a task of another node"


@reason
def run_gone_since_backup(name: str) -> str:
    return (
        f"{name} does not have this run, which this node knows from the backup from which its "
        "database was restored"
    )


@reason
def run_unconfirmed_since_backup(whys: Sequence[Reason]) -> str:
    return (
        f"{'; '.join(whys)}; this node knows the run from the backup from which its database was "
        "restored, and no participant confirms that it still stands"
    )


_TITLES = {"maintenance": "maintenance", "demo": "demo", "quiet": "quiet period"}


def _run_text(
    scheduling_class: SchedulingClass, start: int, end: int, test: str | None, priority: int | None
) -> str:
    """Return a run as a phrase; a node tells no test of a run that another node leads."""
    article = "an" if scheduling_class == SchedulingClass.EXCLUSIVE else "a"
    kind = "run that another node leads" if test is None else f"{test} run of priority {priority}"
    return f"{article} {scheduling_class} {kind}, {to_the_second(start)} to {to_the_second(end)}"
