"""The reasons that a node gives, with the sentence of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from node.model.classes import SchedulingClass
from node.model.reason import Reason, ReasonKind, first_few, reason
from node.model.times import duration_text, to_the_second

# -- time that a node has not ----------------------------------------------------------------------

told = ReasonKind[[str]]("told", "{sentence}")


@reason
def no_time_free(duration: int, because: Reason | None = None) -> str:
    needed = f"no {duration_text(duration)} free"
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
    *,
    spared: bool = False,
) -> str:
    stays = "; its task may lose no further run (displacement_budget)" if spared else ""
    return f"busy with {_run_text(scheduling_class, start, end, test, priority)}{stays}"


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
planned_last = ReasonKind[[int, str]](
    "planned-last", "when it was planned last, at {at:instant}: {decision}"
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


lead_absent = ReasonKind[[int, int]](
    "lead-absent", "no lead of this node was heard from {since:instant} to {until:instant}"
)
followed_has_gap = ReasonKind[[UUID, str]](
    "followed-has-gap", "task {task}, which it follows, has a gap: {why}"
)


@reason
def slots_given_up(count: int, since: int | None) -> str:
    first = "" if since is None else f" from {to_the_second(since)} on"
    return f"{count} given up{first}: the window is over"


# -- limits of the host ----------------------------------------------------------------------------


@reason
def limit_refuses(rule: str | None, detail: Reason, allowed: str | None = None) -> str:
    whose = "limits of this host" if rule is None else f"limit '{rule}'"
    return f"{whose}: {detail}{'' if allowed is None else f'; allowed: {allowed}'}"


priority_without_rule = ReasonKind[[int]](
    "priority-without-rule", "the priority is {priority}, and no rule is for this user"
)
priority_above_rule = ReasonKind[[int]]("priority-above-rule", "the priority is {priority}")
budget_needs_priority = ReasonKind[[]](
    "budget-needs-priority",
    "it has a budget of displacements, by which its runs count as those of the highest priority",
)
no_rule_for_asker = ReasonKind[[str]](
    "no-rule-for-asker",
    "the owner of this host lets {who} measure nothing from here; ask for a rule that names it",
)
test_not_of_rule = ReasonKind[[str]]("test-not-of-rule", "{test} is not among its tests")
class_not_of_rule = ReasonKind[[str, str]](
    "class-not-of-rule", "a {test} run of this spec is {scheduling_class}"
)
target_not_of_rule = ReasonKind[[str]]("target-not-of-rule", "{host} is not among its targets")


@reason
def context_not_of_rule(context: str | None) -> str:
    where = "without a context" if context is None else f"from {context}"
    return f"measuring {where} is not among its contexts"


@reason
def spec_field_misfits(field: str, value: str | None) -> str:
    return f"the spec sets no {field}" if value is None else f"the spec's {field} is {value}"


spec_not_within_rule = ReasonKind[[]]("spec-not-within-rule", "the spec is not within it")
run_occupies_host = ReasonKind[[int]](
    "run-occupies-host", "a run takes {duration:duration} of this host's time"
)
run_moves_at = ReasonKind[[str]]("run-moves-at", "a run moves {rate}")
run_sends_at = ReasonKind[[str, str]]("run-sends-at", "a run sends {rate} to {host}")
run_exceeds_quota = ReasonKind[[str]]("run-exceeds-quota", "one run takes {amount}")
unknown_bytes_of_run = ReasonKind[[str]](
    "unknown-bytes-of-run", "it is not known how much a {test} run of this spec moves"
)
test_tells_of_host = ReasonKind[[str, str, str]](
    "test-tells-of-host", "{test} of this spec would tell {whom} {what}"
)
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


@reason
def resource_taken(  # noqa: PLR0913, PLR0917 - figures
    resource: str,
    used: int,
    number: int,
    end: int,
    amount: int = 1,
    test: str | None = None,
    run: UUID | str | None = None,
) -> str:
    taken = f"resource '{resource}': {used} of {number} taken"
    if used:
        by = "a run that another node leads" if test is None else f"the {test} run {run}"
        taken += f" by {by} until {to_the_second(end)}"
    return taken if amount == 1 else f"{taken}, and a run takes {amount}"


resource_not_kept = ReasonKind[[str, str]](
    "resource-not-kept", "it keeps no resource '{resource}'; it keeps {kept}"
)
resource_too_small = ReasonKind[[int, str, int]](
    "resource-too-small",
    "a run takes {amount} of resource '{resource}', and there is no more than {number}",
)
keeps_no_resources = ReasonKind[[]](
    "keeps-no-resources",
    "it keeps resources from the next release of its program on; upgrade it, or take nothing of it",
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
not_tried_again = ReasonKind[[str]](
    "not-tried-again", "limit '{limit}': runs that came to nothing are not tried again here"
)
no_ports_free = ReasonKind[[int, int, int]](
    "no-ports-free",
    "no {count} ports in a row are free in {first}-{last} (PARLEY_PORT_FIRST, PARLEY_PORT_LAST)",
)


# -- holds that contradict the introduction of their task ------------------------------------------

foreign_exchange_id = ReasonKind[[UUID, UUID, int]](
    "foreign-exchange-id",
    "{exchange} is not an exchange of task {task} under lease epoch {lease_epoch}; derive it from "
    "both",
)
hold_lasts_too_long = ReasonKind[[int, int]](
    "hold-lasts-too-long",
    "{life:duration} is longer than a hold may last without a decision; use at most "
    "{most:duration}",
)


@reason
def priority_above_introduced(priority: int, introduced: int, most: int | None) -> str:
    text = f"{priority} is more than the priority {introduced} with which the task was introduced"
    if most is None:
        return text
    return f"{text}, and than {most}, the most that the owner of this host allows"


run_longer_than_introduced = ReasonKind[[int, int]](
    "run-longer-than-introduced",
    "the run lasts {length:duration}, but the task was introduced with {longest:duration}",
)
attempts_in_one_hold = ReasonKind[[int, int, int]](
    "attempts-in-one-hold",
    "attempts {first} and {second} at the slot {slot:moment} are in one hold; ask for another "
    "attempt once the earlier one is over",
)
foreign_run_id = ReasonKind[[UUID, int, int, UUID]](
    "foreign-run-id",
    "{run} is not the id of attempt {attempt} at the slot {slot:moment} of task {task}; derive it "
    "from these",
)
not_a_nominal_start = ReasonKind[[int, str]](
    "not-a-nominal-start",
    "{slot:moment} is not a nominal start of the task; its schedule was introduced as {schedule}",
)
outside_window_of_slot = ReasonKind[[int, int, int]](
    "outside-window-of-slot",
    "{start:moment} is outside the window of its slot; the schedule was introduced so that it may "
    "start from {slot:moment} to {latest:moment}",
)
more_than_max_runs = ReasonKind[[int, int, int]](
    "more-than-max-runs",
    "{more} more runs beside the {counted} that took place are too many; the task was introduced "
    "with max_runs {max_runs}",
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
    taken = f"{duration_text(longest)}{'' if tool is None else f' with {tool}'}"
    return (
        f"it was introduced with runs of {duration_text(introduced)}, but by its spec they take "
        f"{taken}; introduce it with that duration"
    )


outsider_measures_strangers = ReasonKind[[str]](
    "outsider-measures-strangers",
    "{test} with this spec measures hosts that take no part; a lead from outside gets this host "
    "only to measure with the participants",
)


@reason
def no_tool_for_test(lacks: Mapping[str, Reason]) -> str:
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


# -- tools that do not measure ---------------------------------------------------------------------

tool_cannot_measure = ReasonKind[[str]]("tool-cannot-measure", "{why}")
tool_reaches_unchecked = ReasonKind[[str]]("tool-reaches-unchecked", "{why}")
tool_not_bindable = ReasonKind[[str]]("tool-not-bindable", "cannot be bound to an {kind}")
program_not_installed = ReasonKind[[str, str]](
    "program-not-installed", "{program} is not installed; apt install {package}"
)
program_too_old = ReasonKind[[str, str, str, str]](
    "program-too-old",
    "{program} {version} is older than {least}, the oldest version that is read right; "
    "install a newer {package}",
)
target_link_local = ReasonKind[[str]](
    "target-link-local",
    "{target} is link-local, so it is reached by one interface only; name that as the context "
    "to measure from: --context NODE=interface:NAME",
)
no_raw_sockets = ReasonKind[[str, str]](
    "no-raw-sockets", "{program} needs CAP_NET_RAW for this, which tools lack here; {advice}"
)
no_rights_of_root = ReasonKind[[str, str]](
    "no-rights-of-root", "{program} needs root's capabilities for a moment, and {why}"
)
no_congestion_control = ReasonKind[[str, Sequence[str]]](
    "no-congestion-control",
    "TCP here has no congestion control {wanted}, only {known:list}; take this host's own with "
    "--congestion host, or let root add it: modprobe tcp_{wanted}",
)


@reason
def congestion_control_of_root(wanted: str, open_to_all: Sequence[str]) -> str:
    every = " ".join(sorted({*open_to_all, wanted}))
    return (
        f"only root may use TCP's congestion control {wanted} here; take this host's own with "
        "--congestion host, or let root allow it to all: "
        f"sysctl net.ipv4.tcp_allowed_congestion_control='{every}'"
    )


@reason
def no_common_tool(test: str, preferred: Sequence[str], unfit: Sequence[Reason]) -> str:
    choice = f" among {', '.join(preferred)}" if preferred else ""
    reasons = f" ({'; '.join(unfit)})" if unfit else ""
    return f"no tool{choice} for {test} that every participant has{reasons}"


context_not_allowed = ReasonKind[[str, str]](
    "context-not-allowed",
    "measuring from {context} is not allowed here (allowed: {allowed}); the owner of this host can "
    "allow it: PARLEY_CONTEXTS={context}",
)
context_without_address = ReasonKind[[str]](
    "context-without-address",
    "{context} has no address by which others reach it; the owner of this host can set one: "
    "PARLEY_CONTEXTS={context}=ADDRESS",
)
no_such_interface = ReasonKind[[str]]("no-such-interface", "this host has no interface {interface}")
no_such_namespace = ReasonKind[[str]](
    "no-such-namespace",
    "this host has no network namespace {namespace}; create it: ip netns add {namespace}",
)
namespace_closed = ReasonKind[[str]](
    "namespace-closed",
    "{error}; the service needs CAP_SYS_ADMIN for it (see docs/how-to/contexts.md)",
)
address_unusable = ReasonKind[[str, str]](
    "address-unusable", "{address} cannot be used on this host: {error}"
)
tool_not_bindable_there = ReasonKind[[str, Reason]]("tool-not-bindable-there", "{tool} {why}")


owamp_refused = ReasonKind[[str, str, str]](
    "owamp-refused", "the OWAMP server at {host} refuses {asked}: {why}"
)
owamp_busy = ReasonKind[[str, str, str]](
    "owamp-busy", "the OWAMP server at {host} is busy and refuses {asked}: {why}"
)
owamp_failed = ReasonKind[[str, str]]("owamp-failed", "no OWAMP with {host}: {why}")


# -- targets of measurements -----------------------------------------------------------------------


@reason
def target_is_this_node(target: str, address: str | None, whose: str) -> str:
    return f"{_found(target, address)} this node itself, whose API {whose} must never reach"


@reason
def forbidden_target(target: str, address: str | None, kind: str, whose: str) -> str:
    return f"{_found(target, address)} {kind}, which {whose} must not reach; {_ALLOWING_TARGETS}"


@reason
def private_target_would_tell(target: str, address: str | None, content: str) -> str:
    return (
        f"{_found(target, address)} a private address, and {content} would tell others what is "
        f"sent there; do without {content}, or {_ALLOWING_TARGETS}"
    )


@reason
def port_of_private_target(target: str, address: str | None, port: int, whose: str) -> str:
    return (
        f"{_found(target, address)} a private address, whose port {port} is neither a node's API "
        f"nor for tools, which {whose} must not reach; {_ALLOWING_TARGETS}"
    )


participant_unknown_here = ReasonKind[[str, str]](
    "participant-unknown-here",
    "{name} ({node}) is not known here, so it cannot be asked whether it takes part and at which "
    "port, and a task of another node sends nothing to it; let the owners of both hosts add each "
    "other's nodes (parley node add)",
)
stated_port_not_of_tools = ReasonKind[[int, int, int]](
    "stated-port-not-of-tools",
    "the port {port} is not among those of tools here, {first} to {last} (PARLEY_PORT_FIRST, "
    "PARLEY_PORT_LAST); a task of another node states none but these, or none at all, and has one "
    "assigned",
)
too_much_for_stranger = ReasonKind[[str, int | None, str, int]](
    "too-much-for-stranger",
    "{test} would send {rate} Mb/s to {host}, which is not a participant known here and has not "
    "agreed to it; a task of another node sends at most {most} Mb/s there: send shorter packets or "
    "fewer, or let the owner of this host create the task",
)
address_not_of_card = ReasonKind[[str, str, Sequence[str]]](
    "address-not-of-card",
    "{address} is not an address of {node}: its card here says {known:list}. Cards are read every "
    "15 seconds; if its address has changed, try again then",
)
context_not_offered = ReasonKind[[str, str]](
    "context-not-offered",
    "{node} does not offer the context {context} any more, as its card here says, so there is no "
    "address to measure to; its owner can offer it again (PARLEY_CONTEXTS)",
)
too_many_look_ups = ReasonKind[[str, int]](
    "too-many-look-ups", "no address was found for {host}: {most} names are looked up"
)
no_address_found = ReasonKind[[str]]("no-address-found", "{error}")


@reason
def no_address_in_time(host: str, patience_s: float) -> str:
    return f"no address was found for {host} in {patience_s:.1f} s"


redirect_not_followed = ReasonKind[[str, str]](
    "redirect-not-followed",
    "redirected to {host}, which is not followed: {whose} measure what they name",
)
asker_may_not_name = ReasonKind[[str, str, str]](
    "asker-may-not-name", "{host}: nothing is sent to {role} that {asker} names"
)
not_a_url = ReasonKind[[str, str]]("not-a-url", "{url} is no URL: {error}")
not_a_url_of_http = ReasonKind[[str]]("not-a-url-of-http", "{url} is no URL of http or https")

# -- runs that gave way ----------------------------------------------------------------------------


@reason
def displaced_by_owner(test: str | None = None, task: UUID | None = None) -> str:
    winner = "" if test is None else f" ({_winner(test, task)})"
    return f"displaced by a run that the owner of the host puts first{winner}"


@reason
def displaced_by_lead(test: str, task: UUID | None) -> str:
    whose = "its lead puts first, whatever the priorities"
    return f"displaced by a run that {whose} ({_winner(test, task)})"


@reason
def displaced_by_priority(priority: int, over: int, test: str, task: UUID | None) -> str:
    priorities = f"priority {priority} over {over}"
    return f"displaced by a run of higher priority ({_winner(test, task)}, {priorities})"


displaced_by_other_lead = ReasonKind[[]](
    "displaced-by-other-lead", "displaced by a run of higher priority that another node leads"
)
time_lost_meanwhile = ReasonKind[[]](
    "time-lost-meanwhile",
    "gave way to a run of higher priority that was then not booked, and lost its time meanwhile",
)
not_held_by_all = ReasonKind[[]](
    "not-held-by-all", "was not booked by all participants; is being tried again"
)


# -- tasks and runs that were ended ----------------------------------------------------------------

cancelled_on = ReasonKind[[str]]("cancelled-on", "cancelled on {node}")
withdrew = ReasonKind[[str]]("withdrew", "{node} withdrew from it")
not_created = ReasonKind[[str]]("not-created", "{node} did not finish creating it")
time_had_begun = ReasonKind[[]]("time-had-begun", "its time had begun, so it is not placed again")
placed_again = ReasonKind[[str]]("placed-again", "{why}; is being placed again")
tried_again = ReasonKind[[int, str]](
    "tried-again", "attempt {attempt} came to nothing ({why}), and the slot is tried again"
)
measured_after_all = ReasonKind[[UUID]](
    "measured-after-all", "the slot was measured after all: the missing part of run {run} came"
)
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

asked_by_run = ReasonKind[[UUID, UUID, str]](
    "asked-by-run", "run {run} of task {task} asked for it ({why}), and it is being planned"
)


@reason
def followed_run_ended(run: UUID, task: UUID, state: str, wanted: str, why: str | None) -> str:
    ended = f"run {run} of task {task} is {state}, and this task follows {wanted}"
    return f"{ended}: {why}" if why else ended


@reason
def followed_is_over(task: UUID, state: str, why: str | None) -> str:
    over = f"task {task}, which it follows, is {state}"
    return f"{over}: {why}" if why else over


# -- parts of runs that were not measured, or not begun --------------------------------------------

run_cancelled = ReasonKind[[]]("run-cancelled", "cancelled")
path_carries_less = ReasonKind[[str, int, int]](
    "path-carries-less",
    "the path to {name} carries {mtu} bytes; the interface sends {link}, and longer packets vanish",
)
track_lost = ReasonKind[[]]("track-lost", "this node lost track of its part")
restarted_meanwhile = ReasonKind[[]]("restarted-meanwhile", "the node was restarted during the run")
stopped_meanwhile = ReasonKind[[]]("stopped-meanwhile", "the node was stopped during the run")
server_busy = ReasonKind[[str]]("server-busy", "the server at {where} is busy with another client")
started_too_late = ReasonKind[[int]](
    "started-too-late", "could not be started in time: {late:seconds} late"
)
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


all_lost = ReasonKind[[]]("all-lost", "all packets were lost")
all_lost_forward = ReasonKind[[]](
    "all-lost-forward", "all packets were lost from the source to the dest; others came back"
)
all_lost_backward = ReasonKind[[]](
    "all-lost-backward", "all packets were lost from the dest to the source; others arrived there"
)


@reason
def beyond_threshold(figure: str, value: float, bound: float, worse: str, judgement: str) -> str:
    return f"{figure} is {value:.6g}; {bound:g} or {worse} is {judgement}"


@reason
def common_cause(
    suspect: str,
    failing: int,
    crossing: int,
    since: int | None,
    known: Sequence[str],
    alternatives: Sequence[str],
) -> str:
    begun = "" if since is None else f" since {to_the_second(since)}"
    told = f"{suspect}: {failing} of {crossing} tasks{begun}, {'; '.join(known)}"
    if not alternatives:
        return told
    return f"{told}. It may as well be {' or '.join(alternatives)}: nothing tells them apart"


judged_by_lead = ReasonKind[[str]]("judged-by-lead", "its lead, {lead}, has the result")
no_run_over = ReasonKind[[]]("no-run-over", "none of its runs is over yet")
too_old = ReasonKind[[int]]("too-old", "nothing newer than of {ended_at:instant} is known")


_TITLES = {"maintenance": "maintenance", "demo": "demo", "quiet": "quiet period"}
_ALLOWING_TARGETS = "the owner of this host can allow it: PARLEY_TARGETS=NETWORK"


def _found(target: str, address: str | None) -> str:
    """Return the beginning of a sentence about an address; None of a name, where it is not told."""
    if address is None:
        return f"{target} leads to"
    return f"{target} is" if address == target else f"{target}, which leads to {address}, is"


def _winner(test: str, task: UUID | None) -> str:
    """Return the run that another one gave way to, by its task, unless that is of another user."""
    return f"{test} of {'a task of another user' if task is None else f'task {task}'}"


def _run_text(
    scheduling_class: SchedulingClass, start: int, end: int, test: str | None, priority: int | None
) -> str:
    """Return a run as a phrase; a node tells no test of a run that another node leads."""
    article = "an" if scheduling_class == SchedulingClass.EXCLUSIVE else "a"
    kind = "run that another node leads" if test is None else f"{test} run of priority {priority}"
    return f"{article} {scheduling_class} {kind}, {to_the_second(start)} to {to_the_second(end)}"
