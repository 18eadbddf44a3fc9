"""Random queries of a database, with arguments drawn from so few values that they interact."""

from __future__ import annotations

from decimal import Decimal
from inspect import signature
from random import Random
from typing import Any
from uuid import UUID

from lead.simulation.memory.statements import Statement
from lead.simulation.memory.twins import FILES
from node.model import times
from node.model.runstate import RunState
from tests.support.clocks import START
from tests.support.recorded_queries import Transaction

NODES = ["a", "b", "c"]
TASKS = [UUID(int=number) for number in (1, 2, 3)]
RESERVATIONS = [UUID(int=number) for number in (21, 22)]
EXCHANGES = [UUID(int=number) for number in (11, 12, 13, 14, 15)]
INSTANTS = [START + minute * times.MINUTE for minute in range(9)]
RUNS = {
    UUID(int=100 * task.int + 10 * minute + attempt): (task, INSTANTS[minute], attempt)
    for task in TASKS
    for minute in (0, 2, 4, 6)
    for attempt in (1, 2)
}
"""By run, the task and slot that it serves."""

STATES = [state.value for state in RunState]
SMALL = {
    **dict.fromkeys(("epoch", "epochs", "before_epoch"), (0, 1, 2)),
    **dict.fromkeys(("revision", "revisions"), (1, 1, 2)),
    **dict.fromkeys(("priority", "priorities", "failures", "max_runs"), (0, 1, 2)),
    **dict.fromkeys(("attempt", "attempts"), (1, 2)),
    **dict.fromkeys(("participant", "participants", "asked", "placed"), (0, 1)),
    **dict.fromkeys(("duration", "lifetimes", "delay"), (times.MINUTE, 2 * times.MINUTE)),
    **dict.fromkeys(("message_id", "ids"), range(1, 20)),
    **dict.fromkeys(("process_id", "ticks"), (7,)),
    **dict.fromkeys(("exclusive", "normal"), (1000, 125)),
    "background": (0, 0, 10),
    **dict.fromkeys(("moved", "moved_bytes"), (0, 7, 60_000_000)),
    "lanes": (1, 3, 8),
    "ranks": (0, -1),
    "level": (0, 5, 10),
    "shares": (0, 1, 3),
    "seats_max": (1, 2),
    "target_seats": (1, 2),
    "campaign": (1, 2, 3),
    **dict.fromkeys(("limit", "at_most"), (1, 50)),
    **dict.fromkeys(("seats", "counts", "place", "places"), (1, 2, 3)),
    **dict.fromkeys(("rounds_left", "patience", "tries"), (1, 5)),
    "slot_counts": (4, 5, 100),
    "heard_before": (0,),  # lead processes are not simulated
    "was_tries": (0, 1),
    "was_seats": (1, 2, 3),
    "held": (0, 0, 1),
    "kept": (0, 1),
}
WORDS = {
    **dict.fromkeys(
        ("classes", "scheduling_class"), ("exclusive", "exclusive", "normal", "background")
    ),
    **dict.fromkeys(("kind", "kinds"), ("commit", "part")),
    **dict.fromkeys(("over", "not_counted", "took_place", "before"), STATES),
    **dict.fromkeys(("tool", "tools", "test", "name", "key", "digest"), ("x", "y")),
    **dict.fromkeys(("outcomes", "sentences", "outcome", "sentence"), ("so", "so", "else")),
    **dict.fromkeys(("reason", "reasons", "error", "words", "label", "summary"), ("this", "that")),
    **dict.fromkeys(("url", "address", "owner", "output", "said", "payload"), ("z",)),
    **dict.fromkeys(("contact", "description"), ("z",)),
    **dict.fromkeys(("campaign", "parent"), ("default", "ops", "ops-lab")),
    **dict.fromkeys(("pool", "policy_set"), ("europe", "asia")),
    "caps": ("[]", '[["targets", "192.0.2.7/32"]]'),
    "choice": ("sticky", "rotating"),
    "states": ("waiting", "unplaced"),
    "verdict": ("clean", "suspicious", "contaminated"),
    "verdict_reasons": ("it was late",),
    "purpose": ("demo", "quiet"),
    "task": tuple(str(task) for task in TASKS),
}
DOCUMENTS: dict[str, list[Any]] = {
    "answers": [{}, {"data": {"port": 1}}, {"data": {"port": 2, "ports": 3}}],
    "schedule": [{}, {"max_runs": 2}, *({"after": {"task": str(task)}} for task in TASKS[:2])],
    "participants": [[{"node": "a"}], [{"node": "b"}, {"node": "a"}], [{"node": "c"}]],
    "messages": [
        {"task": str(task), "exchange": str(exchange)}
        for task, exchange in zip(TASKS, EXCHANGES, strict=False)
    ],
    "access": [
        *({}, {"tasks": [str(TASKS[0])]}, {"campaigns": ["z"]}, {"campaigns": ["default"]}),
        *({"leads": ["a", "b"]}, {"tests": ["x"]}, {"classes": ["background"]}, {"priority": 1}),
    ],
    "weight": [Decimal(1), Decimal("0.25")],
    "target_share": [Decimal(1), Decimal("0.25")],
}
OF_QUERY = {
    ("tasks.end_tasks", "state"): ["cancelled", "refused"],
    ("runs.conclude", "state"): ["finished", "failed"],
    ("runs.move", "state"): STATES,
    ("campaigns.keep_campaign", "state"): ["active", "closed"],
    ("pools.keep_pool", "name"): ["europe", "asia"],
    ("episodes.notify", "said"): ["task x booked", "task y planned"],
    ("campaigns.keep_campaign", "name"): ["default", "ops", "ops-lab"],
}
ELSEWHERE = {"keepers", "keep", "starts", "ends", "numbers", "slots", "attempts"}
"""Lists that must fit the others."""

NOT_KEPT = {"audit.keep_entries"}
"""Queries whose twins keep nothing, and tell nobody."""

OFTEN = {
    *("tasks.upsert_task", "tasks.open_planning", "bookings.open_exchanges", "bookings.book"),
    *("bookings.set_aside", "bookings.decide_exchanges", "planning.keep_waiting", "runs.begin"),
    *("bookings.restore_set_aside", "planning.claim", "planning.open_negotiations"),
    *("ledger.charge", "runs.move", "runs.conclude", "campaigns.keep_campaign"),
    *("pools.keep_pool", "seats.keep_pool_task", "episodes.open_terms", "episodes.take"),
    *("episodes.adopt", "episodes.tried", "dependencies.followers", "dependencies.follow"),
}
SELDOM = {
    *(
        "tasks.end_tasks",
        "tasks.purge_surplus_tasks",
        "nodes.remove",
        "runs.purge_runs",
        "runs.purge_exchanges",
        "runs.purge_decisions",
        "runs.purge_gaps",
        "campaigns.purge_charges",
    ),
    *("bookings.take_waiting", "changes.free_led", "tasks.finish_tasks"),
}


class RandomQuerier:
    """Draws arbitrary queries."""

    def __init__(self, rng: Random) -> None:
        """Weigh the queries."""
        self._rng = rng
        self._statements = [
            s for file in FILES for s in file.statements.values() if s.name not in NOT_KEPT
        ]
        self._weights = [
            6.0 if s.name in OFTEN else 0.2 if s.name in SELDOM else 1.0 for s in self._statements
        ]

    def transactions(self, many: int) -> list[Transaction]:
        """Draw this many transactions, the first of which registers this node itself."""
        named = {statement.name: statement.text for statement in self._statements}
        first = Transaction([(named["nodes.keep_self"], ("a", "a", "z", "z", START, {}, 8))])
        return [first, *(self._transaction() for _ in range(many))]

    def _transaction(self) -> Transaction:
        chosen = self._rng.choices(self._statements, self._weights, k=self._rng.randint(1, 4))
        asked = [(statement.text, self._arguments(statement)) for statement in chosen]
        return Transaction(asked, committed=self._rng.random() < 0.9)

    def _arguments(self, statement: Statement) -> tuple[Any, ...]:
        parameters = {
            name: str(parameter.annotation)
            for name, parameter in list(signature(statement.twin).parameters.items())[1:]
        }
        many = 1 if statement.name == "bookings.set_aside" else self._rng.randint(1, 3)
        made = {
            name: self._argument(statement.name, name, kind, many)
            for name, kind in parameters.items()
            if name not in ELSEWHERE
        }
        self._fit(made, set(parameters))
        return tuple(made[name] for name in parameters)

    def _argument(self, query: str, name: str, kind: str, many: int) -> Any:
        if name in {"participants", "tools", "command"} and kind.startswith("list"):
            return self._rng.choice(DOCUMENTS.get(name, [["x"]]))
        if not kind.startswith("Sequence"):
            return self._value(query, name, kind)
        kind = kind.removeprefix("Sequence[").removesuffix("]")
        if kind == "UUID" and name != "tasks":
            return self._rng.sample(self._pool(query, name), many)
        if name == "tasks":
            return self._rng.sample(TASKS, many)
        return [self._value(query, name, kind) for _ in range(many)]

    def _value(self, query: str, name: str, kind: str) -> Any:
        if "None" in kind and self._rng.random() < 0.2:
            return None
        if kind.startswith("bool"):
            return self._rng.random() < 0.6
        return self._rng.choice(self._pool(query, name, kind))

    def _pool(self, query: str, name: str, kind: str = "UUID") -> list[Any]:
        if kind.startswith("UUID"):
            if name == "reservation":
                return RESERVATIONS
            if name in {"run", "runs", "executing", "following", "winner", "named"}:
                return list(RUNS)
            of_exchange = name.startswith("exchange") or query == "bookings.exchange_standings"
            return EXCHANGES if of_exchange else TASKS
        if kind.startswith("int"):
            return list(SMALL.get(name, INSTANTS))
        if kind.startswith("str"):
            return list(OF_QUERY.get((query, name)) or WORDS.get(name, NODES))
        return DOCUMENTS.get(name, [{}, {"x": 1}])

    def _fit(self, made: dict[str, Any], names: set[str]) -> None:
        """Make the lists that belong to others fit them."""
        if "keep" in names:
            made["keep"] = self._rng.sample(list(RUNS), 2)
            made["keepers"] = [self._rng.choice(EXCHANGES) for _ in range(2)]
        if "named_by" in names:
            of = made["parts"] if "parts" in names else made["runs"]
            made["named_by"] = self._rng.choices(of, k=len(made["named"]))
        if "found_by" in names:
            made["found_by"] = self._rng.choices(made["parts"], k=len(made["found"]))
        if "numbers" in names:
            each = list(range(1, len(made["tasks"]) + 1))
            any_of_them = "ends" in names  # a negotiation is about one run at least, a hold is not
            made["numbers"] = self._rng.choices(each, k=len(each)) if any_of_them else each
        if "runs" in made and "slots" in names:
            self._fit_slots(made, names)
        if {"since", "until"} <= names:
            made["since"], made["until"] = sorted((made["since"], made["until"]))
        self._fit_spans(made, names)

    def _fit_spans(self, made: dict[str, Any], names: set[str]) -> None:
        """Choose spans that end after their start: those of gaps, or all of one length."""
        if "slot_counts" in names:
            pairs = zip(made["first_slots"], made["last_slots"], strict=True)
            made["first_slots"], made["last_slots"] = zip(*map(sorted, pairs), strict=True)
        if "ends" not in names:
            return
        many = len(made["runs"]) if "runs" in made else 3
        made["starts"] = self._rng.sample(INSTANTS, many)
        long = self._rng.choice((1, 2, 3)) * times.MINUTE
        made["ends"] = [start + long for start in made["starts"]]

    def _fit_slots(self, made: dict[str, Any], names: set[str]) -> None:
        """Choose runs of the given tasks, with the slots that they serve."""
        runs: dict[UUID, None] = {}
        if "task" in names:
            of = [made["task"]] * len(made["runs"])
        elif "numbers" in names:
            of = [made["tasks"][number - 1] for number in made["numbers"]]
        else:
            of = made["tasks"]
        for task in of:
            own = [run for run, key in RUNS.items() if key[0] == task and run not in runs]
            runs[self._rng.choice(own)] = None
        made["runs"] = list(runs)
        made["slots"] = [RUNS[run][1] for run in runs]
        made["attempts"] = [RUNS[run][2] for run in runs]
