"""The reasons that a lead gives, with the sentence of each. Pure.

Those of the policies stand beside the policies, as rules (:mod:`lead.policy.verdict`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from node.model import times
from node.model.classes import SchedulingClass
from node.model.gaps import FORGOTTEN
from node.model.reason import Reason, ReasonKind, first_few, reason
from node.model.times import format_instant, to_the_second

# -- time that participants have, and have not -----------------------------------------------------

no_time_in_window = ReasonKind[[int]](
    "no-time-in-window", "no {duration:duration} free in this window"
)
no_common_time = ReasonKind[[Sequence[str], int]](
    "no-common-time", "{names:and} have no {duration:duration} free at the same time in this window"
)
window_taken = ReasonKind[[Sequence[str]]](
    "window-taken", "{names:and}: another run of this task occupies this window"
)


@reason
def busy_with_own(
    scheduling_class: SchedulingClass, priority: int, campaign: str, start: int, end: int
) -> str:
    article = "an" if scheduling_class == SchedulingClass.EXCLUSIVE else "a"
    kind = f"{article} {scheduling_class} run of priority {priority}"
    return f"busy with {kind} of campaign {campaign}, {_span(start, end)}"


not_offered = ReasonKind[[int, int, int]](
    "not-offered", "no {duration:duration} is free from {start:instant} to {end:instant}"
)
beyond_horizons = ReasonKind[[]](
    "beyond-horizons", "its window does not lie within the horizon of all participants yet"
)


@reason
def planned_too_late(*, forgotten: bool) -> str:
    return f"its window was over before it could be planned{FORGOTTEN if forgotten else ''}"


# -- participants that cannot be asked, or agree on nothing ----------------------------------------

unreachable = ReasonKind[[str, int, str]](
    "unreachable", "{name} cannot be reached since {since:instant}: {cause}"
)
no_valid_answer = ReasonKind[[str, int, str]](
    "no-valid-answer", "{name} gives no valid answer since {since:instant}: {cause}"
)


@reason
def clocks_differ(name: str, off: int, theirs: int, ours: int) -> str:
    way = "ahead of" if off > 0 else "behind"
    return (
        f"the clock of {name} is {abs(off) / times.SECOND:.1f} s {way} this node's "
        f"(theirs {format_instant(theirs)}, ours {format_instant(ours)})"
    )


hold_not_stated = ReasonKind[[]]("hold-not-stated", "it does not state that it holds the run")


@reason
def hold_dropped(name: str | None) -> str:
    who = "a node that is not known here any more" if name is None else name
    return f"{who} had dropped the hold before the commit came"


# -- attempts at planning --------------------------------------------------------------------------

campaign_suspended = ReasonKind[[str]](
    "campaign-suspended",
    "the campaign {campaign} is suspended; resume: parley campaign edit {campaign} --level 5",
)
nothing_to_place = ReasonKind[[]]("nothing-to-place", "there was nothing to place")


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


taken_over = ReasonKind[[]]("taken-over", "another worker has taken the task over")
taken_back_meanwhile = ReasonKind[[]](
    "taken-back-meanwhile", "taken back while it was being booked"
)
decided_too_late = ReasonKind[[]](
    "decided-too-late", "the decision came too late: the task ended or its lease was lost"
)
planning_broke_off = ReasonKind[[str]]("planning-broke-off", "planning broke off: {why}")
planning_took_long = ReasonKind[[int]](
    "planning-took-long", "it took longer than {patience:duration}"
)


@reason
def program_fault(error: str) -> str:
    return f"a fault of this program: {error}"[:500]


# -- plans that are only shown ---------------------------------------------------------------------

over_by_now = ReasonKind[[]]("over-by-now", "its window is over before it could be planned")
window_over = ReasonKind[[]]("window-over", "its window is over")


@reason
def runs_found(
    placed: int, asked: int, first: int, displacing: int = 0, waiting: Reason | None = None
) -> str:
    found = f"{placed} of {asked} runs would be booked, the first at {to_the_second(first)}"
    found += _displacing(displacing)
    return found if waiting is None else f"{found}; the others would wait: {waiting}"


@reason
def follows_runs(task: UUID, found: Reason | None, when: str | None = None) -> str:
    unknown = f"it follows task {task}, so that its times are known only when runs of that task end"
    if when is not None:
        unknown += f" with {when}"
    if found is None:
        return f"{unknown}; none of these is booked within the horizon now"
    if when is not None:
        return f"{unknown}; if the next one does: {found}"
    return f"{unknown}; if these end as they are booked now: {found}"


no_run_to_come = ReasonKind[[]]("no-run-to-come", "it leaves no run to come")
first_run_beyond_horizon = ReasonKind[[int]](
    "first-run-beyond-horizon",
    "its first run, at {start:instant}, lies beyond the horizon and cannot be forecast yet; it "
    "is planned when it comes closer",
)


@reason
def quotas_not_told(names: Sequence[str]) -> str:
    whose = "does not tell its" if len(names) == 1 else "do not tell their"
    return f"{' and '.join(names)} {whose} quotas"


gives_way_later = ReasonKind[[int]](
    "gives-way-later", "what gives way to it does so from {at:instant} on, once it has waited"
)
displaced_not_told = ReasonKind[[Sequence[str]]](
    "displaced-not-told", "{names:and} cannot say what would give way"
)
not_reached_in_episode = ReasonKind[[]](
    "not-reached-in-episode",
    "as many tasks of its pool come before it as one episode considers; try again",
)
over_before_choice = ReasonKind[[]](
    "over-before-choice",
    "its time is over before nodes could be chosen; give a later start, or more slip",
)
chosen_later = ReasonKind[[int]](
    "chosen-later", "not known yet: its nodes are chosen from {begins:instant} on"
)


@reason
def seats_of_later_terms(terms: int, taken: int, wanted: int) -> str:
    return f"of {terms} {'term' if terms == 1 else 'terms'} more {taken} of {wanted} seats"


latest_starts_missed = ReasonKind[[int, int]](
    "latest-starts-missed",
    "{runs} of its runs would miss the latest start, the first at {first:instant}",
)


# -- documents that would do better, and are not found ---------------------------------------------

times_follow_runs = ReasonKind[[]](
    "times-follow-runs",
    "the runs of another task decide when it runs; a longer after.within may help",
)
no_agreement_now = ReasonKind[[]](
    "no-agreement-now",
    "no time can be agreed with a node that does not answer, or while two clocks differ",
)
task_is_refused = ReasonKind[[Reason]]("task-is-refused", "it is refused: {why}")
no_tool_for_all = ReasonKind[[]]("no-tool-for-all", "no tool for it that every participant has")
no_search_for_seats = ReasonKind[[]](
    "no-search-for-seats",
    "no alternatives are searched for pool tasks; try fewer nodes, a later start, or more slip",
)
cron_is_not_shifted = ReasonKind[[]](
    "cron-is-not-shifted", "a cron schedule cannot be shifted; change its fields"
)
no_slot = ReasonKind[[]]("no-slot", "there is no slot to place")
no_later_time = ReasonKind[[int]](
    "no-later-time", "no later {duration:duration} is free for all participants within the horizon"
)
no_shift_helps = ReasonKind[[]](
    "no-shift-helps", "no shift of its starts within one interval helps"
)
no_length_to_reduce = ReasonKind[[]](
    "no-length-to-reduce", "its measurement has no length that could be reduced"
)
shortest_finds_no_time = ReasonKind[[str]](
    "shortest-finds-no-time", "even {length} would find no time"
)
no_other_tool = ReasonKind[[str]](
    "no-other-tool", "no other tool for {test} that every participant has"
)
other_tools_find_no_time = ReasonKind[[Sequence[str]]](
    "other-tools-find-no-time", "{tools:list} would not find the time either"
)
single_run_needs_no_slip = ReasonKind[[]](
    "single-run-needs-no-slip", "a single run can start later instead"
)
no_slip_helps = ReasonKind[[]]("no-slip-helps", "more slip within the interval does not help")
no_interval = ReasonKind[[]]("no-interval", "it has no interval")
no_longer_interval_helps = ReasonKind[[]](
    "no-longer-interval-helps", "not even every twelfth run alone would always find time"
)


# -- comparisons with other nodes ------------------------------------------------------------------

booked_for_other_terms = ReasonKind[[]](
    "booked-for-other-terms", "it was booked for other terms than those of its lead"
)
given_up_too_early = ReasonKind[[]](
    "given-up-too-early", "its lead took it for over before its start: its clock was ahead"
)
ended_there = ReasonKind[[str, str]](
    "ended-there", "it is {state} on {name}, which was told so before"
)
run_missing_there = ReasonKind[[str]]("run-missing-there", "{name} does not have it any more")
run_moved_there = ReasonKind[[str, int]](
    "run-moved-there", "{name} has it at another time, {start:instant}"
)
run_only_there = ReasonKind[[str]]("run-only-there", "only {name} has it")
run_not_led = ReasonKind[[]]("run-not-led", "its lead does not have it any more")
task_unknown_there = ReasonKind[[str]]("task-unknown-there", "{name} does not know it")
terms_differ_there = ReasonKind[[str]]("terms-differ-there", "{name} has it with other terms")
state_differs_there = ReasonKind[[str]]("state-differs-there", "{name} has it in another state")
revision_differs_there = ReasonKind[[str, int, int]](
    "revision-differs-there", "{name} has it in revision {known}, its lead in {own}"
)


# -- seats -----------------------------------------------------------------------------------------

not_needed = ReasonKind[[]]("not-needed", "was not needed")
free_for_some_slots = ReasonKind[[]]("free-for-some-slots", "has time for some of the slots only")
free_apart_from_others = ReasonKind[[]](
    "free-apart-from-others", "has time, but not at the same time as enough others"
)
free_apart_from_seats = ReasonKind[[]](
    "free-apart-from-seats", "has time, but not beside the runs of the other seats"
)
free_without_permission = ReasonKind[[]](
    "free-without-permission", "has time, but no more seats are permitted"
)
left_out_by_spread = ReasonKind[[str]](
    "left-out-by-spread", "others with its {attribute} are taken"
)
given_to_seat = ReasonKind[[int, int]](
    "given-to-seat", "given to another seat from {start:instant} to {end:instant}"
)
kept_for_blocked = ReasonKind[[int, int, str]](
    "kept-for-blocked",
    "its time from {start:instant} to {end:instant} is kept for task {holder}, which is blocked",
)


@reason
def too_much_to_displace(runs: int, most: int, before: int) -> str:
    number = "1 run" if runs == 1 else f"{runs} runs"
    had = f", and {before} have it" if before else ""
    return (
        f"{number} would have to give way to it; that is allowed for {most} of its seats at most"
        f"{had}"
    )


refused_before = ReasonKind[[int, str]](
    "refused-before", "refused it, and is asked again from {again:instant} on: {why}"
)
no_other_node = ReasonKind[[str]]("no-other-node", "pool {pool} has no other node for the seat")


@reason
def seats_empty(whys: Sequence[Reason]) -> str:
    return first_few(list(dict.fromkeys(whys)), "; ")


chosen_too_late = ReasonKind[[]](
    "chosen-too-late", "its time was over before nodes could be chosen"
)
seats_stayed_empty = ReasonKind[[int, int, str]](
    "seats-stayed-empty", "{empty} of {seats} seats stayed empty: {why}"
)


@reason
def seats_lost(seats: Sequence[tuple[int, str, str]]) -> str:
    return "; ".join(f"seat {number} ({name}): {why}" for number, name, why in seats)


node_forgotten = ReasonKind[[]]("node-forgotten", "it is not known here any more")
silent_for_long = ReasonKind[[str, int, int]](
    "silent-for-long", "{name} has not answered for {patience:duration}, since {since:instant}"
)
time_gone = ReasonKind[[Reason]]("time-gone", "has no time any more: {why}")
giving_seats_failed = ReasonKind[[str]]("giving-seats-failed", "giving seats failed: {why}")
pool_empty = ReasonKind[[str, str]](
    "pool-empty", "pool {pool} is empty: no node known here has {match}"
)


@reason
def pool_lacks_nodes(
    pool: str, possible: int, least: int, alike: int, unable: Mapping[str, str]
) -> str:
    nodes = f"{possible} node{'' if possible == 1 else 's'}"
    shortage = f"pool {pool} has {nodes} for it, and it needs at least {least}"
    why = [f"{alike} are too much alike"] if alike else []
    why += [f"{name}: {reason}" for name, reason in unable.items()]
    return f"{shortage} ({'; '.join(why)})" if why else shortage


pool_has_enough = ReasonKind[[]]("pool-has-enough", "its pool has enough nodes for it again")


@reason
def lack_unknown(error: str) -> str:
    return f"what its pool lacks is not known, by a fault of this program: {error}"[:500]


def _span(start: int, end: int) -> str:
    return f"{to_the_second(start)} to {to_the_second(end)}"


def _displacing(runs: int) -> str:
    return f", {runs} of them displacing other runs" if runs else ""
