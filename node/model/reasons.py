"""The reasons that a node gives, with the sentence of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from node.model.classes import SchedulingClass
from node.model.reason import Reason, first_few, reason
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


@reason
def asked_again(at: int) -> str:
    return f"asked again at {to_the_second(at)}"


@reason
def planned_again(at: int) -> str:
    return f"planned again at {to_the_second(at)}"


@reason
def not_planned_again(end: int) -> str:
    return f"not planned again: the task ends before, at {to_the_second(end)}"


@reason
def led_by_outsider(lead: str) -> str:
    return f"it is led by {lead}, which chooses the times of its runs"


@reason
def planned_by_lead(lead: str) -> str:
    return f"it is planned by its lead, {lead}, which has the trace"


@reason
def followed_has_not_ended() -> str:
    return "no run that it follows has ended yet"


@reason
def nothing_left_to_plan() -> str:
    return "nothing is left to plan"


@reason
def planned_when_closer() -> str:
    return "its first run lies beyond the horizon; it is planned when it comes closer"


@reason
def about_to_be_planned() -> str:
    return "it is about to be planned"


@reason
def follows_unknown_task(runs: str, task: UUID) -> str:
    return f"it follows {runs} of task {task}, which is not known here"


@reason
def follows_task(runs: str, task: UUID, test: str, state: str, within: int) -> str:
    return (
        f"it follows {runs} of task {task} ({test}, {state}), each with a run that starts within "
        f"{format_duration(within)} of its end"
    )


@reason
def followed_has_no_time() -> str:
    return "none of them has a time yet"


@reason
def followed_starts_next(at: int) -> str:
    return f"the next of them starts at {to_the_second(at)}"


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


@reason
def exchange_of_another_task() -> str:
    return "this exchange belongs to another task; open a new exchange"


@reason
def exchange_released() -> str:
    return "this exchange has been released; open a new exchange"


@reason
def task_not_introduced(task: UUID) -> str:
    return f"task {task} is not known here; introduce it first"


@reason
def task_led_by_another(task: UUID) -> str:
    return f"task {task} is led by another node"


@reason
def revision_older_here(task: UUID, known: int, asked: int) -> str:
    return (
        f"this node knows revision {known} of task {task}, which is older than {asked}; introduce "
        "the task again"
    )


@reason
def revision_newer_here(task: UUID, known: int, asked: int) -> str:
    return f"this node knows revision {known} of task {task}, which is newer than {asked}"


@reason
def task_not_active_here(task: UUID, state: str) -> str:
    return f"task {task} is {state} here"


@reason
def lease_superseded(epoch: int, known: int) -> str:
    return f"lease epoch {epoch} has been superseded by epoch {known}; claim the task again"


@reason
def attempt_is_booked(attempt: int, run: UUID) -> str:
    return f"attempt {attempt} of this slot is booked here, or has begun: run {run}"


@reason
def slot_planned_anew(run: UUID) -> str:
    return f"its lead plans this slot anew, as run {run}"


@reason
def slot_run_already(run: UUID, began_at: int) -> str:
    return (
        f"this slot has been run here already: run {run} began at {to_the_second(began_at)}, "
        "before this node heard that it was given up"
    )


@reason
def slot_cancelled_already(why: str) -> str:
    return f"the run of this slot was cancelled, before its lead's database was restored: {why}"


@reason
def no_ports_free(count: int, first: int, last: int) -> str:
    return (
        f"no {count} ports in a row are free in {first}-{last} "
        "(PARLEY_PORT_FIRST, PARLEY_PORT_LAST)"
    )


# -- introductions that are refused ----------------------------------------------------------------


@reason
def class_differs_here(test: str, scheduling_class: str) -> str:
    return f"{test} is {scheduling_class} here"


@reason
def participants_not_of_spec(test: str, named: int, introduced: int) -> str:
    return (
        f"{test} with this spec is measured by {named}, and it was introduced with {introduced} "
        "participants; introduce it with those that the spec names"
    )


@reason
def duration_not_of_spec(introduced: int, longest: int, tool: str | None) -> str:
    taken = f"{format_duration(longest)}{'' if tool is None else f' with {tool}'}"
    return (
        f"it was introduced with runs of {format_duration(introduced)}, but by its spec they take "
        f"{taken}; introduce it with that duration"
    )


@reason
def outsider_measures_strangers(test: str) -> str:
    return (
        f"{test} with this spec measures hosts that take no part; a lead from outside gets this "
        "host only to measure with the participants"
    )


@reason
def no_tool_for_test(lacks: Mapping[str, str]) -> str:
    why = "; ".join(f"{tool}: {lack}" for tool, lack in lacks.items())
    return why or "no tool is known for this test"


@reason
def no_such_participant(place: int) -> str:
    return f"there is no participant {place}"


@reason
def addressed_to_another() -> str:
    return "the introduction is addressed to another node; check its URL and key"


@reason
def task_of_another_lead(task: UUID) -> str:
    return f"a task with the id {task} is led by another node"


@reason
def task_over_here(state: str, why: str | None) -> str:
    return f"the task is {state} here: {why or 'its schedule is over'}"


@reason
def too_many_tasks_of_lead(count: int, most: int) -> str:
    return (
        f"its lead has {count} open tasks here, and this host takes at most {most} of another node "
        "(PARLEY_PEER_TASKS); end some, or ask again later"
    )


@reason
def introduced_too_fast(retry_s: int) -> str:
    return (
        "its lead introduces and changes tasks faster than this host takes them of another node "
        f"(PARLEY_PEER_INTRODUCTIONS a second); ask again in {retry_s} s"
    )


@reason
def limit_of_lead_reached(limit: str, count: int, most: int) -> str:
    return (
        f"limit '{limit}': its lead has {count} of {most} open tasks here; end some, or ask again "
        "later"
    )


@reason
def booked_runs_count_elsewhere() -> str:
    return "its booked runs would measure other addresses than they count for; free them first"


@reason
def booked_runs_have_no_room(why: Reason) -> str:
    return f"its booked runs have no room there: {why}; free them first"


@reason
def context_not_known_yet(context: str) -> str:
    return (
        f"its address in the context {context} is not known here (yet); a node's card is read "
        "every 15 seconds, try again then"
    )


@reason
def opted_out(host: str, record: str) -> str:
    return f"{host} has said by DNS ({record} TXT) that it does not want to be measured"


# -- tasks and runs that were ended ----------------------------------------------------------------


@reason
def cancelled_on(node: str) -> str:
    return f"cancelled on {node}"


@reason
def withdrew(node: str) -> str:
    return f"{node} withdrew from it"


@reason
def not_created(node: str) -> str:
    return f"{node} did not finish creating it"


@reason
def time_had_begun() -> str:
    return "its time had begun, so it is not placed again"


@reason
def placed_again(why: str) -> str:
    return f"{why}; is being placed again"


@reason
def task_changed() -> str:
    return "the task was changed"


@reason
def schedule_over() -> str:
    return "its schedule is over"


@reason
def pool_task_ended(state: str, why: str) -> str:
    return f"its pool task was {state}: {why}"


@reason
def task_ended(state: str, why: str) -> str:
    return f"the task was {state}: {why}"


@reason
def lead_silent(node: str, lead: str, since: int, lease: int) -> str:
    return (
        f"{node} has not heard of {lead}, which leads it, since {to_the_second(since)}: longer "
        f"than {format_duration(lease)} (PARLEY_LEAD_LEASE)"
    )


@reason
def left_by_outsider() -> str:
    return "its lead has nothing to come for it"


@reason
def unknown_to_lead() -> str:
    return "its lead does not know it"


@reason
def removed_on(node: str) -> str:
    return f"was removed on {node}"


@reason
def revoked_on(node: str) -> str:
    return f"was revoked on {node}, by its owner"


@reason
def revoked_itself(node: str) -> str:
    return f"has revoked its key, as {node} has heard"


@reason
def lead_gone(name: str, why: Reason) -> str:
    return f"{name}, which leads it, {why}"


@reason
def participant_gone(name: str, why: Reason) -> str:
    return f"{name}, which takes part in it, {why}"


# -- runs that follow others -----------------------------------------------------------------------


@reason
def paused_when_followed_ended(run: UUID, task: UUID) -> str:
    return f"the task was paused when run {run} of task {task} ended, which it follows"


@reason
def follows_run(run: UUID, task: UUID) -> str:
    return f"follows run {run} of task {task}, and is being planned"


@reason
def followed_run_ended(run: UUID, task: UUID, state: str, wanted: str, why: str | None) -> str:
    ended = f"run {run} of task {task} is {state}, and this task follows {wanted}"
    return f"{ended}: {why}" if why else ended


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
def no_port_told(name: str) -> str:
    return f"{name} has told no port at which it listens"


@reason
def port_not_of_tools(name: str, port: int, first: int, last: int) -> str:
    return (
        f"{name} listens at port {port}, which is not among the ports of tools here, {first} to "
        f"{last} (PARLEY_PORT_FIRST, PARLEY_PORT_LAST); a task of another node sends to other "
        "ports only if that node's API answers at the same address"
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
