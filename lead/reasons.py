"""The reasons that a lead gives, with the sentence of each. Pure.

Those of the policies stand beside the policies, as rules (:mod:`lead.policy.verdict`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from node.model import times
from node.model.classes import SchedulingClass
from node.model.gaps import FORGOTTEN
from node.model.reason import Reason, first_few, reason
from node.model.times import format_duration, format_instant, to_the_second

# -- time that participants have, and have not -----------------------------------------------------


@reason
def no_time_in_window(duration: int) -> str:
    return f"no {format_duration(duration)} free in this window"


@reason
def no_common_time(names: Sequence[str], duration: int) -> str:
    needed = f"no {format_duration(duration)} free"
    return f"{' and '.join(names)} have {needed} at the same time in this window"


@reason
def window_taken(names: Sequence[str]) -> str:
    return f"{' and '.join(names)}: another run of this task occupies this window"


@reason
def busy_with_own(
    scheduling_class: SchedulingClass, priority: int, campaign: str, start: int, end: int
) -> str:
    article = "an" if scheduling_class == SchedulingClass.EXCLUSIVE else "a"
    kind = f"{article} {scheduling_class} run of priority {priority}"
    return f"busy with {kind} of campaign {campaign}, {_span(start, end)}"


@reason
def not_offered(duration: int, start: int, end: int) -> str:
    first, last = to_the_second(start), to_the_second(end)
    return f"no {format_duration(duration)} is free from {first} to {last}"


@reason
def beyond_horizons() -> str:
    return "its window does not lie within the horizon of all participants yet"


@reason
def planned_too_late(*, forgotten: bool) -> str:
    return f"its window was over before it could be planned{FORGOTTEN if forgotten else ''}"


# -- participants that cannot be asked, or agree on nothing ----------------------------------------


@reason
def unreachable(name: str, since: int, cause: str) -> str:
    return f"{name} cannot be reached since {to_the_second(since)}: {cause}"


@reason
def no_valid_answer(name: str, since: int, cause: str) -> str:
    return f"{name} gives no valid answer since {to_the_second(since)}: {cause}"


@reason
def clocks_differ(name: str, off: int, theirs: int, ours: int) -> str:
    way = "ahead of" if off > 0 else "behind"
    return (
        f"the clock of {name} is {abs(off) / times.SECOND:.1f} s {way} this node's "
        f"(theirs {format_instant(theirs)}, ours {format_instant(ours)})"
    )


@reason
def hold_not_stated() -> str:
    return "it does not state that it holds the run"


@reason
def hold_dropped(name: str | None) -> str:
    who = "a node that is not known here any more" if name is None else name
    return f"{who} had dropped the hold before the commit came"


# -- attempts at planning --------------------------------------------------------------------------


@reason
def campaign_suspended(campaign: str) -> str:
    return (
        f"the campaign {campaign} is suspended; resume: parley campaign edit {campaign} --level 5"
    )


@reason
def nothing_to_place() -> str:
    return "there was nothing to place"


@reason
def runs_booked(
    placed: int, asked: int, first: int, displacing: int, waiting: Reason | None
) -> str:
    booked = f"{placed} of {asked} runs booked, the first at {to_the_second(first)}"
    booked += _displacing(displacing)
    return booked if waiting is None else f"{booked}; the others wait: {waiting}"


@reason
def books_without_holds(names: Sequence[str]) -> str:
    return f"{' and '.join(names)} {'books' if len(names) == 1 else 'book'} without holds"


@reason
def taken_over() -> str:
    return "another worker has taken the task over"


@reason
def taken_back_meanwhile() -> str:
    return "taken back while it was being booked"


@reason
def decided_too_late() -> str:
    return "the decision came too late: the task ended or its lease was lost"


@reason
def planning_broke_off(why: str) -> str:
    return f"planning broke off: {why}"


@reason
def planning_took_long(patience: int) -> str:
    return f"it took longer than {format_duration(patience)}"


@reason
def program_fault(error: str) -> str:
    return f"a fault of this program: {error}"[:500]


# -- plans that are only shown ---------------------------------------------------------------------


@reason
def over_by_now() -> str:
    return "its window is over before it could be planned"


@reason
def window_over() -> str:
    return "its window is over"


@reason
def runs_found(
    placed: int, asked: int, first: int, displacing: int = 0, waiting: Reason | None = None
) -> str:
    found = f"{placed} of {asked} runs would be booked, the first at {to_the_second(first)}"
    found += _displacing(displacing)
    return found if waiting is None else f"{found}; the others would wait: {waiting}"


@reason
def follows_runs(task: UUID, found: Reason | None) -> str:
    unknown = f"it follows task {task}, so that its times are known only when runs of that task end"
    if found is None:
        return f"{unknown}; none of these is booked within the horizon now"
    return f"{unknown}; if these end as they are booked now: {found}"


@reason
def no_run_to_come() -> str:
    return "it leaves no run to come"


@reason
def first_run_beyond_horizon(start: int) -> str:
    return (
        f"its first run, at {to_the_second(start)}, lies beyond the horizon and cannot be forecast "
        "yet; it is planned when it comes closer"
    )


@reason
def quotas_not_told(names: Sequence[str]) -> str:
    whose = "does not tell its" if len(names) == 1 else "do not tell their"
    return f"{' and '.join(names)} {whose} quotas"


@reason
def displaced_not_told(names: Sequence[str]) -> str:
    return f"{' and '.join(names)} cannot say what would give way"


@reason
def not_reached_in_episode() -> str:
    return "as many tasks of its pool come before it as one episode considers; try again"


@reason
def over_before_choice() -> str:
    return "its time is over before nodes could be chosen; give a later start, or more slip"


@reason
def chosen_later(begins: int) -> str:
    return f"not known yet: its nodes are chosen from {to_the_second(begins)} on"


@reason
def seats_of_later_terms(terms: int, taken: int, wanted: int) -> str:
    return f"of {terms} {'term' if terms == 1 else 'terms'} more {taken} of {wanted} seats"


@reason
def latest_starts_missed(runs: int, first: int) -> str:
    return f"{runs} of its runs would miss the latest start, the first at {to_the_second(first)}"


# -- documents that would do better, and are not found ---------------------------------------------


@reason
def times_follow_runs() -> str:
    return "the runs of another task decide when it runs; a longer after.within may help"


@reason
def no_agreement_now() -> str:
    return "no time can be agreed with a node that does not answer, or while two clocks differ"


@reason
def task_is_refused(why: Reason) -> str:
    return f"it is refused: {why}"


@reason
def no_tool_for_all() -> str:
    return "no tool for it that every participant has"


@reason
def no_search_for_seats() -> str:
    return (
        "no alternatives are searched for pool tasks; try fewer nodes, a later start, or more slip"
    )


@reason
def cron_is_not_shifted() -> str:
    return "a cron schedule cannot be shifted; change its fields"


@reason
def no_slot() -> str:
    return "there is no slot to place"


@reason
def no_later_time(duration: int) -> str:
    return f"no later {format_duration(duration)} is free for all participants within the horizon"


@reason
def no_shift_helps() -> str:
    return "no shift of its starts within one interval helps"


@reason
def no_length_to_reduce() -> str:
    return "its measurement has no length that could be reduced"


@reason
def shortest_finds_no_time(length: str) -> str:
    return f"even {length} would find no time"


@reason
def no_other_tool(test: str) -> str:
    return f"no other tool for {test} that every participant has"


@reason
def other_tools_find_no_time(tools: Sequence[str]) -> str:
    return f"{', '.join(tools)} would not find the time either"


@reason
def single_run_needs_no_slip() -> str:
    return "a single run can start later instead"


@reason
def no_slip_helps() -> str:
    return "more slip within the interval does not help"


@reason
def no_interval() -> str:
    return "it has no interval"


@reason
def no_longer_interval_helps() -> str:
    return "not even every twelfth run alone would always find time"


# -- comparisons with other nodes ------------------------------------------------------------------


@reason
def booked_for_other_terms() -> str:
    return "it was booked for other terms than those of its lead"


@reason
def given_up_too_early() -> str:
    return "its lead took it for over before its start: its clock was ahead"


@reason
def ended_there(name: str, state: str) -> str:
    return f"it is {state} on {name}, which was told so before"


@reason
def run_missing_there(name: str) -> str:
    return f"{name} does not have it any more"


@reason
def run_moved_there(name: str, start: int) -> str:
    return f"{name} has it at another time, {to_the_second(start)}"


@reason
def run_only_there(name: str) -> str:
    return f"only {name} has it"


@reason
def run_not_led() -> str:
    return "its lead does not have it any more"


@reason
def task_unknown_there(name: str) -> str:
    return f"{name} does not know it"


@reason
def terms_differ_there(name: str) -> str:
    return f"{name} has it with other terms"


@reason
def state_differs_there(name: str) -> str:
    return f"{name} has it in another state"


@reason
def revision_differs_there(name: str, known: int, own: int) -> str:
    return f"{name} has it in revision {known}, its lead in {own}"


# -- seats -----------------------------------------------------------------------------------------


@reason
def not_needed() -> str:
    return "was not needed"


@reason
def free_for_some_slots() -> str:
    return "has time for some of the slots only"


@reason
def free_apart_from_others() -> str:
    return "has time, but not at the same time as enough others"


@reason
def free_apart_from_seats() -> str:
    return "has time, but not beside the runs of the other seats"


@reason
def free_without_permission() -> str:
    return "has time, but no more seats are permitted"


@reason
def left_out_by_spread(attribute: str) -> str:
    return f"others with its {attribute} are taken"


@reason
def given_to_seat(start: int, end: int) -> str:
    return f"given to another seat from {to_the_second(start)} to {to_the_second(end)}"


@reason
def kept_for_blocked(start: int, end: int, holder: str) -> str:
    first, last = to_the_second(start), to_the_second(end)
    return f"its time from {first} to {last} is kept for task {holder}, which is blocked"


@reason
def too_much_to_displace(runs: int, most: int, before: int) -> str:
    number = "1 run" if runs == 1 else f"{runs} runs"
    had = f", and {before} have it" if before else ""
    return (
        f"{number} would have to give way to it; that is allowed for {most} of its seats at most"
        f"{had}"
    )


@reason
def refused_before(again: int, why: str) -> str:
    return f"refused it, and is asked again from {to_the_second(again)} on: {why}"


@reason
def no_other_node(pool: str) -> str:
    return f"pool {pool} has no other node for the seat"


@reason
def seats_empty(whys: Sequence[Reason]) -> str:
    return first_few(list(dict.fromkeys(whys)), "; ")


@reason
def chosen_too_late() -> str:
    return "its time was over before nodes could be chosen"


@reason
def seats_stayed_empty(empty: int, seats: int, why: str) -> str:
    return f"{empty} of {seats} seats stayed empty: {why}"


@reason
def seats_lost(seats: Sequence[tuple[int, str, str]]) -> str:
    return "; ".join(f"seat {number} ({name}): {why}" for number, name, why in seats)


@reason
def node_forgotten() -> str:
    return "it is not known here any more"


@reason
def silent_for_long(name: str, patience: int, since: int) -> str:
    long, begin = format_duration(patience), to_the_second(since)
    return f"{name} has not answered for {long}, since {begin}"


@reason
def time_gone(why: Reason) -> str:
    return f"has no time any more: {why}"


@reason
def giving_seats_failed(why: str) -> str:
    return f"giving seats failed: {why}"


@reason
def pool_empty(pool: str, match: str) -> str:
    return f"pool {pool} is empty: no node known here has {match}"


@reason
def pool_lacks_nodes(
    pool: str, possible: int, least: int, alike: int, unable: Mapping[str, str]
) -> str:
    nodes = f"{possible} node{'' if possible == 1 else 's'}"
    shortage = f"pool {pool} has {nodes} for it, and it needs at least {least}"
    why = [f"{alike} are too much alike"] if alike else []
    why += [f"{name}: {reason}" for name, reason in unable.items()]
    return f"{shortage} ({'; '.join(why)})" if why else shortage


@reason
def pool_has_enough() -> str:
    return "its pool has enough nodes for it again"


@reason
def lack_unknown(error: str) -> str:
    return f"what its pool lacks is not known, by a fault of this program: {error}"[:500]


def _span(start: int, end: int) -> str:
    return f"{to_the_second(start)} to {to_the_second(end)}"


def _displacing(runs: int) -> str:
    return f", {runs} of them displacing other runs" if runs else ""
