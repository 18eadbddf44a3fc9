"""The reasons that a node gives, with the sentence of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from node.model.classes import SchedulingClass
from node.model.reason import Reason, ReasonKind, first_few, reason
from node.model.times import SECOND, format_duration, to_the_second

# -- time that a node has not ----------------------------------------------------------------------

told = ReasonKind[[str]]("told", "{sentence}")


@reason
def no_time_free(duration: int, because: Reason | None = None) -> str:
    needed = f"no {format_duration(duration)} free"
    return needed if because is None else f"{needed}: {because}"


time_has_passed = ReasonKind[[]]("time-has-passed", "the time asked for has passed or is too close")
beyond_horizon = ReasonKind[[int]](
    "beyond-horizon", "beyond this node's horizon, {horizon:instant}"
)


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

attribute_unfit = ReasonKind[[str, str, str]](
    "attribute-unfit", "{there}, and {whose} asks for {condition}"
)
takes_part_already = ReasonKind[[]]("takes-part-already", "takes part in it already")
lacks_tools = ReasonKind[[Sequence[str]]](
    "lacks-tools", "has none of the tools for it: {tools:list}"
)


@reason
def silent(since: int, error: str | None) -> str:
    text = f"has not answered since {to_the_second(since)}"
    return f"{text}: {error}" if error else text


# -- seats of pool tasks ---------------------------------------------------------------------------


@reason
def seats_left(empty: int, why: Reason) -> str:
    return f"{empty} {'is' if empty == 1 else 'are'} empty: {why}"


@reason
def seats_given(
    filled: int, wanted: int, term: tuple[int, int], nodes: Sequence[str] = (), displaced: int = 0
) -> str:
    first, last = map(to_the_second, term)
    when = first if first == last else f"{first} to {last}"
    text = f"{filled} of {wanted} seat{'' if wanted == 1 else 's'}, {when}"
    text += f": {first_few(nodes)}" if nodes else ""
    if displaced:
        text += f"; {displaced} run{'s' if displaced > 1 else ''} may be displaced"
    return text


@reason
def seats_wait(nodes: Sequence[str], runs: int, since: int, why: str) -> str:
    whose = f"seat{'' if len(nodes) == 1 else 's'} of {first_few(nodes)}"
    runs_wait = f"{runs} run{' waits' if runs == 1 else 's wait'}"
    return f"{whose}: {runs_wait} from {to_the_second(since)} on, because {why}"


@reason
def terms_due_before(pool: str, terms: int) -> str:
    return f"in pool {pool} {terms:,} terms are due before it or at the same time"


# -- tasks that were not planned yet, or are planned again -----------------------------------------

asked_again = ReasonKind[[int]]("asked-again", "asked again at {at:instant}")
planned_again = ReasonKind[[int]]("planned-again", "planned again at {at:instant}")
not_planned_again = ReasonKind[[int]](
    "not-planned-again", "not planned again: the task ends before, at {end:instant}"
)
led_by_outsider = ReasonKind[[str]](
    "led-by-outsider", "it is led by {lead}, which chooses the times of its runs"
)
planned_by_lead = ReasonKind[[str]](
    "planned-by-lead", "it is planned by its lead, {lead}, which has the trace"
)
followed_has_not_ended = ReasonKind[[]](
    "followed-has-not-ended", "no run that it follows has ended yet"
)
nothing_left_to_plan = ReasonKind[[]]("nothing-left-to-plan", "nothing is left to plan")
planned_when_closer = ReasonKind[[]](
    "planned-when-closer",
    "its first run lies beyond the horizon; it is planned when it comes closer",
)
about_to_be_planned = ReasonKind[[]]("about-to-be-planned", "it is about to be planned")
follows_unknown_task = ReasonKind[[str, UUID]](
    "follows-unknown-task", "it follows {runs} of task {task}, which is not known here"
)
follows_task = ReasonKind[[str, UUID, str, str, int]](
    "follows-task",
    "it follows {runs} of task {task} ({test}, {state}), each with a run that starts within "
    "{within:duration} of its end",
)
followed_has_no_time = ReasonKind[[]]("followed-has-no-time", "none of them has a time yet")
followed_starts_next = ReasonKind[[int]](
    "followed-starts-next", "the next of them starts at {at:instant}"
)


# -- slots that nobody planned in time -------------------------------------------------------------

windows_over = ReasonKind[[]](
    "windows-over", "their windows were over before they could be planned"
)


@reason
def slots_given_up(count: int, since: int | None) -> str:
    first = "" if since is None else f" from {to_the_second(since)} on"
    return f"{count} given up{first}: the window is over"


# -- limits of the host ----------------------------------------------------------------------------


@reason
def limit_refuses(rule: str | None, detail: str, allowed: str | None = None) -> str:
    whose = "limits of this host" if rule is None else f"limit '{rule}'"
    return f"{whose}: {detail}{'' if allowed is None else f'; allowed: {allowed}'}"


limit_used_up = ReasonKind[[str, str, str, int]](
    "limit-used-up", "limit '{limit}': {used} of {most} used, free again from {free_at:instant}"
)
limit_of_rate_used = ReasonKind[[str, str, int]](
    "limit-of-rate-used",
    "limit '{limit}': {rate} at one time used, free again from {free_at:instant}",
)
limit_of_runs_at_once_reached = ReasonKind[[str, int, int]](
    "limit-of-runs-at-once-reached",
    "limit '{limit}': {most} of {most} runs at once, free again from {free_at:instant}",
)
closed_by_limit = ReasonKind[[str, int]](
    "closed-by-limit",
    "limit '{limit}': it admits no runs at this time; open again from {opens_at:instant}",
)
limit_of_tasks_reached = ReasonKind[[str, str, int, int]](
    "limit-of-tasks-reached",
    "limit '{limit}': {user} has {count} of {most} open tasks here; cancel some, or ask again "
    "later",
)


@reason
def cap_of_tasks_reached(limit: str, count: int, most: int, *, together: bool) -> str:
    who = "the nodes for which it counts have" if together else "it has"
    return f"limit '{limit}': {who} {count} of {most} open tasks here; end some, or ask again later"


cap_reached = ReasonKind[[str, str, str]](
    "cap-reached", "limit '{limit}': no more than {most} to {network}"
)


# -- holds that are refused ------------------------------------------------------------------------

start_has_passed = ReasonKind[[]]("start-has-passed", "its start has passed")
ends_beyond_horizon = ReasonKind[[int]](
    "ends-beyond-horizon", "it ends beyond this node's horizon, {horizon:instant}"
)
taken_a_moment_ago = ReasonKind[[]]("taken-a-moment-ago", "its time was taken a moment ago")
time_is_closed = ReasonKind[[Reason]]("time-is-closed", "its time is {why}")
exchange_of_another_task = ReasonKind[[]](
    "exchange-of-another-task", "this exchange belongs to another task; open a new exchange"
)
exchange_released = ReasonKind[[]](
    "exchange-released", "this exchange has been released; open a new exchange"
)
task_not_introduced = ReasonKind[[UUID]](
    "task-not-introduced", "task {task} is not known here; introduce it first"
)
task_led_by_another = ReasonKind[[UUID]](
    "task-led-by-another", "task {task} is led by another node"
)
revision_older_here = ReasonKind[[int, UUID, int]](
    "revision-older-here",
    "this node knows revision {known} of task {task}, which is older than {asked}; introduce the "
    "task again",
)
revision_newer_here = ReasonKind[[int, UUID, int]](
    "revision-newer-here",
    "this node knows revision {known} of task {task}, which is newer than {asked}",
)
task_not_active_here = ReasonKind[[UUID, str]](
    "task-not-active-here", "task {task} is {state} here"
)
lease_superseded = ReasonKind[[int, int]](
    "lease-superseded",
    "lease epoch {epoch} has been superseded by epoch {known}; claim the task again",
)
attempt_is_booked = ReasonKind[[int, UUID]](
    "attempt-is-booked", "attempt {attempt} of this slot is booked here, or has begun: run {run}"
)
slot_planned_anew = ReasonKind[[UUID]](
    "slot-planned-anew", "its lead plans this slot anew, as run {run}"
)
slot_run_already = ReasonKind[[UUID, int]](
    "slot-run-already",
    "this slot has been run here already: run {run} began at {began_at:instant}, before this "
    "node heard that it was given up",
)
slot_cancelled_already = ReasonKind[[str]](
    "slot-cancelled-already",
    "the run of this slot was cancelled, before its lead's database was restored: {why}",
)
no_ports_free = ReasonKind[[int, int, int]](
    "no-ports-free",
    "no {count} ports in a row are free in {first}-{last} (PARLEY_PORT_FIRST, PARLEY_PORT_LAST)",
)


# -- introductions that are refused ----------------------------------------------------------------

class_differs_here = ReasonKind[[str, str]](
    "class-differs-here", "{test} is {scheduling_class} here"
)
participants_not_of_spec = ReasonKind[[str, int, int]](
    "participants-not-of-spec",
    "{test} with this spec is measured by {named}, and it was introduced with {introduced} "
    "participants; introduce it with those that the spec names",
)


@reason
def duration_not_of_spec(introduced: int, longest: int, tool: str | None) -> str:
    taken = f"{format_duration(longest)}{'' if tool is None else f' with {tool}'}"
    return (
        f"it was introduced with runs of {format_duration(introduced)}, but by its spec they take "
        f"{taken}; introduce it with that duration"
    )


outsider_measures_strangers = ReasonKind[[str]](
    "outsider-measures-strangers",
    "{test} with this spec measures hosts that take no part; a lead from outside gets this host "
    "only to measure with the participants",
)


@reason
def no_tool_for_test(lacks: Mapping[str, str]) -> str:
    why = "; ".join(f"{tool}: {lack}" for tool, lack in lacks.items())
    return why or "no tool is known for this test"


no_such_participant = ReasonKind[[int]]("no-such-participant", "there is no participant {place}")
addressed_to_another = ReasonKind[[]](
    "addressed-to-another", "the introduction is addressed to another node; check its URL and key"
)
task_of_another_lead = ReasonKind[[UUID]](
    "task-of-another-lead", "a task with the id {task} is led by another node"
)


@reason
def task_over_here(state: str, why: str | None) -> str:
    return f"the task is {state} here: {why or 'its schedule is over'}"


too_many_tasks_of_lead = ReasonKind[[int, int]](
    "too-many-tasks-of-lead",
    "its lead has {count} open tasks here, and this host takes at most {most} of another node "
    "(PARLEY_PEER_TASKS); end some, or ask again later",
)
introduced_too_fast = ReasonKind[[int]](
    "introduced-too-fast",
    "its lead introduces and changes tasks faster than this host takes them of another node "
    "(PARLEY_PEER_INTRODUCTIONS a second); ask again in {retry_s} s",
)
limit_of_lead_reached = ReasonKind[[str, int, int]](
    "limit-of-lead-reached",
    "limit '{limit}': its lead has {count} of {most} open tasks here; end some, or ask again later",
)
booked_runs_count_elsewhere = ReasonKind[[]](
    "booked-runs-count-elsewhere",
    "its booked runs would measure other addresses than they count for; free them first",
)
booked_runs_have_no_room = ReasonKind[[Reason]](
    "booked-runs-have-no-room", "its booked runs have no room there: {why}; free them first"
)
context_not_known_yet = ReasonKind[[str]](
    "context-not-known-yet",
    "its address in the context {context} is not known here (yet); a node's card is read every "
    "15 seconds, try again then",
)
opted_out = ReasonKind[[str, str]](
    "opted-out", "{host} has said by DNS ({record} TXT) that it does not want to be measured"
)


# -- tasks and runs that were ended ----------------------------------------------------------------

cancelled_on = ReasonKind[[str]]("cancelled-on", "cancelled on {node}")
withdrew = ReasonKind[[str]]("withdrew", "{node} withdrew from it")
not_created = ReasonKind[[str]]("not-created", "{node} did not finish creating it")
time_had_begun = ReasonKind[[]]("time-had-begun", "its time had begun, so it is not placed again")
placed_again = ReasonKind[[str]]("placed-again", "{why}; is being placed again")
task_changed = ReasonKind[[]]("task-changed", "the task was changed")
schedule_over = ReasonKind[[]]("schedule-over", "its schedule is over")
pool_task_ended = ReasonKind[[str, str]]("pool-task-ended", "its pool task was {state}: {why}")
task_ended = ReasonKind[[str, str]]("task-ended", "the task was {state}: {why}")
lead_silent = ReasonKind[[str, str, int, int]](
    "lead-silent",
    "{node} has not heard of {lead}, which leads it, since {since:instant}: longer than "
    "{lease:duration} (PARLEY_LEAD_LEASE)",
)
left_by_outsider = ReasonKind[[]]("left-by-outsider", "its lead has nothing to come for it")
unknown_to_lead = ReasonKind[[]]("unknown-to-lead", "its lead does not know it")
removed_on = ReasonKind[[str]]("removed-on", "was removed on {node}")
revoked_on = ReasonKind[[str]]("revoked-on", "was revoked on {node}, by its owner")
revoked_itself = ReasonKind[[str]]("revoked-itself", "has revoked its key, as {node} has heard")
lead_gone = ReasonKind[[str, Reason]]("lead-gone", "{name}, which leads it, {why}")
participant_gone = ReasonKind[[str, Reason]](
    "participant-gone", "{name}, which takes part in it, {why}"
)


# -- runs that follow others -----------------------------------------------------------------------

paused_when_followed_ended = ReasonKind[[UUID, UUID]](
    "paused-when-followed-ended",
    "the task was paused when run {run} of task {task} ended, which it follows",
)
follows_run = ReasonKind[[UUID, UUID]](
    "follows-run", "follows run {run} of task {task}, and is being planned"
)


@reason
def followed_run_ended(run: UUID, task: UUID, state: str, wanted: str, why: str | None) -> str:
    ended = f"run {run} of task {task} is {state}, and this task follows {wanted}"
    return f"{ended}: {why}" if why else ended


# -- parts of runs that were not measured, or not begun --------------------------------------------

run_cancelled = ReasonKind[[]]("run-cancelled", "cancelled")
track_lost = ReasonKind[[]]("track-lost", "this node lost track of its part")
restarted_meanwhile = ReasonKind[[]]("restarted-meanwhile", "the node was restarted during the run")
stopped_meanwhile = ReasonKind[[]]("stopped-meanwhile", "the node was stopped during the run")


@reason
def started_too_late(late: int) -> str:
    return f"could not be started in time: {late / SECOND:.1f} s late"


down_at_start = ReasonKind[[int]](
    "down-at-start", "the node was down at its start and came back at {back_at:instant}"
)
not_begun_before = ReasonKind[[int]](
    "not-begun-before", "the node had not begun it at {noticed_at:instant}"
)
not_measured_or_forgotten = ReasonKind[[Reason]](
    "not-measured-or-forgotten",
    "{why}, or measured it and forgot that when its database was restored from a backup",
)
not_begun_yet = ReasonKind[[int, int]](
    "not-begun-yet",
    "it begins at {starts_at:instant}, and here it is {now:instant}; no part of it is taken yet: "
    "compare the clocks",
)
booking_unconfirmed = ReasonKind[[Sequence[str]]](
    "booking-unconfirmed", "{names:and} did not confirm in time that it has this run"
)
program_not_begun = ReasonKind[[]]("program-not-begun", "its program could not be begun")
tool_was_killed = ReasonKind[[str, str]]("tool-was-killed", "{tool} was killed: it {why}")
plugin_failed = ReasonKind[[str, str]]("plugin-failed", "the {plugin} plugin failed: {error}")
plugin_at_fault = ReasonKind[[str, str]]("plugin-at-fault", "the {plugin} plugin {fault}")
result_not_kept = ReasonKind[[]](
    "result-not-kept", "its result could not be kept; the log of the node has the details"
)


# -- parts that others were to measure, or confirm -------------------------------------------------

no_part_in_time = ReasonKind[[]]("no-part-in-time", "sent no part in time")
no_share_in_time = ReasonKind[[]]("no-share-in-time", "did not report it in time")
part_refused = ReasonKind[[str]]("part-refused", "its part was refused: {why}")


@reason
def nothing_measured(gap: str | None) -> str:
    return f"nothing was measured: {gap}" if gap else "nothing was measured"


spec_invalid_here = ReasonKind[[str]](
    "spec-invalid-here", "the spec is not valid for this program's version: {detail}"
)
no_intervals_of_test = ReasonKind[[str]](
    "no-intervals-of-test", "this version has no test {test} with intervals, or refuses its spec"
)
port_not_as_stated = ReasonKind[[int, str, int]](
    "port-not-as-stated",
    "the task states the port {stated}, and {name} does not listen there for it, but at {port}",
)
no_port_told = ReasonKind[[str]]("no-port-told", "{name} has told no port at which it listens")
port_not_of_tools = ReasonKind[[str, int, int, int]](
    "port-not-of-tools",
    "{name} listens at port {port}, which is not among the ports of tools here, {first} to "
    "{last} (PARLEY_PORT_FIRST, PARLEY_PORT_LAST); a task of another node sends to other ports "
    "only if that node's API answers at the same address",
)
part_unconfirmed = ReasonKind[[Reason]](
    "part-unconfirmed",
    "{why}; a task of another node sends nothing to it unless it confirms that it takes part",
)
confirmation_late = ReasonKind[[]](
    "confirmation-late", "it did not say in time whether it takes part"
)
run_not_booked_there = ReasonKind[[str]](
    "run-not-booked-there",
    "{name} has not booked this run, so nothing is sent to it for a task of another node",
)
run_gone_since_backup = ReasonKind[[str]](
    "run-gone-since-backup",
    "{name} does not have this run, which this node knows from the backup from which its "
    "database was restored",
)
run_unconfirmed_since_backup = ReasonKind[[Sequence[Reason]]](
    "run-unconfirmed-since-backup",
    "{whys:several}; this node knows the run from the backup from which its database was "
    "restored, and no participant confirms that it still stands",
)


# -- why what was measured is not good, or is not known --------------------------------------------


@reason
def all_lost(directions: Sequence[str]) -> str:
    return " ".join(["all packets were lost", " and ".join(directions)]).rstrip()


@reason
def beyond_threshold(figure: str, value: float, bound: float, worse: str, judgement: str) -> str:
    return f"{figure} is {value:.6g}; {bound:g} or {worse} is {judgement}"


judged_by_lead = ReasonKind[[str]]("judged-by-lead", "its lead, {lead}, has the result")
no_run_over = ReasonKind[[]]("no-run-over", "none of its runs is over yet")
too_old = ReasonKind[[int]]("too-old", "nothing newer than of {ended_at:instant} is known")


_TITLES = {"maintenance": "maintenance", "demo": "demo", "quiet": "quiet period"}


def _run_text(
    scheduling_class: SchedulingClass, start: int, end: int, test: str | None, priority: int | None
) -> str:
    """Return a run as a phrase; a node tells no test of a run that another node leads."""
    article = "an" if scheduling_class == SchedulingClass.EXCLUSIVE else "a"
    kind = "run that another node leads" if test is None else f"{test} run of priority {priority}"
    return f"{article} {scheduling_class} {kind}, {to_the_second(start)} to {to_the_second(end)}"
