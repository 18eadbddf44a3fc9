"""The names of the figures of each test, as lists have them: with labels (``loss.forward``).

Thresholds and alerts name figures, and a name that no result has would never hold. Tests of other
authors are not in the table: any name is taken for theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from node.model.alerts import OUTCOME, PATH, rules_of
from node.model.conditions import FigureBound, RaisedAlert, parse_condition, parts_of, rule_family
from node.model.errors import FieldFault
from node.model.outcome import Judgement
from node.model.similar import similar_words, suggestion

_WAYS = (".forward", ".backward", ".round_trip")


def _delays(name: str) -> tuple[str, ...]:
    return tuple(f"{name}_{which}_ms" for which in ("median", "min", "p95"))


_BOTH_WAYS = (
    *map("".join, product((*_delays("delay"), "loss", "jitter_ms"), _WAYS)),
    "clock_error_ms",
)
_PHASES = ("name", "connect", "tls", "request", "first_byte", "transfer")
_ANY = ".*"

FIGURE_NAMES: Mapping[str, Sequence[str]] = {
    "clock": ("offset_ms", "bound_ms", "claimed_error_ms"),
    "dns": ("time_ms", "total_ms", "tries", "answers", "ttl_s"),
    "http": ("total_ms", f"phase_ms{_ANY}", "status", "body_bytes", "redirects"),
    "idle": ("idle_ms",),
    "idlebg": ("idle_ms",),
    "interface": tuple(
        f"{name}{_ANY}" for name in ("rate_bps", "peak_bps", "bytes", "packets", "errors", "drops")
    ),
    "latency": _BOTH_WAYS,
    "latencybg": (*_BOTH_WAYS, "gaps"),
    "mtu": ("mtu_bytes", "reached"),
    "ntp": (
        "offset_ms",
        "bound_ms",
        *_delays("round_trip"),
        "loss",
        "stratum",
        "root_distance_ms",
    ),
    "rtt": (*_delays("rtt"), "loss", "jitter_ms"),
    "simplestream": ("elapsed_ms",),
    "snmp": tuple(f"{name}{_ANY}" for name in ("rate_bps", "utilisation", "errors", "drops")),
    "tcp": (*_delays("connect"), "loss", "name_ms", "banner_ms"),
    "throughput": ("throughput_bps", "retransmits", "tcp_rtt_mean_ms", "loss", "jitter_ms"),
    "tls": ("handshake_ms", "days_left", "connect_ms", "name_ms"),
    "trace": ("hops", "rtt_median_ms", "reached"),
}
"""By test, its figures; an end of ``.*`` stands for any labels."""


def is_figure(test: str, name: str) -> bool:
    """Return whether results of a test may have figures of this name, in some direction or all."""
    known = FIGURE_NAMES.get(test)
    if known is None:
        return True
    base, _, labels = name.partition(".")
    return any(
        each == name or (each.partition(".")[0] == base and (not labels or each.endswith(_ANY)))
        for each in known
    )


def figure_faults(test: str, reference: object, at: str = "/reference") -> Iterator[FieldFault]:
    """Yield the thresholds and alerts in the reference of a task that no result can meet.

    ``at`` is the place of the reference in its document.
    """
    if not isinstance(reference, Mapping):
        return
    thresholds, alerts = (reference.get(member) for member in ("thresholds", "alerts"))
    others = {OUTCOME, PATH} if test == "trace" else {OUTCOME}
    for member, written, special in (
        ("thresholds", thresholds, frozenset[str]()),
        ("alerts", alerts, others),
    ):
        for name in written if isinstance(written, Mapping) else ():
            if name not in special and not is_figure(test, name):
                yield FieldFault(f"{at}/{member}/{name}", unknown_figure(test, name, special))
    for name, terms in alerts.items() if isinstance(alerts, Mapping) else ():
        bounded = isinstance(thresholds, Mapping) and name in thresholds
        unusual = isinstance(terms, Mapping) and terms.get("change") is not None
        if name not in others and is_figure(test, name) and not bounded and not unusual:
            why = "has no threshold of this name, and no change: it would never be raised"
            yield FieldFault(f"{at}/alerts/{name}", why)


def condition_fault(written: str | None, test: str, reference: object) -> str | None:
    """Return why no run of a test meets a condition; None if some may.

    ``reference`` is that of the task, whose thresholds and alerts may be asked for.
    """
    if written is None:
        return None
    thresholds = reference.get("thresholds") if isinstance(reference, Mapping) else None
    rules = [rule.name for rule in rules_of(reference)]
    for part in parts_of(parse_condition(written)):
        match part:
            case FigureBound(name) if not is_figure(test, name):
                return f"{name} {unknown_figure(test, name)}"
            case Judgement.FAIR | Judgement.BAD if not thresholds:
                return f"no run is {part}: the task that is followed has no thresholds"
            case RaisedAlert(name) if not rules or not _has_rule(rules, name):
                what = "no alert is" if name is None else f"the alert {name} is not"
                hint = f": {suggestion(name or '', rules)}" if rules else "; it has no thresholds"
                return f"{what} raised by the task that is followed{hint}"
    return None


def _has_rule(rules: Sequence[str], name: str | None) -> bool:
    """Return whether an alert of this name may be raised by some rule; None is any name."""
    if name is None:
        return True
    return any(name in {rule, rule_family(rule)} or rule_family(name) == rule for rule in rules)


def unknown_figure(test: str, name: str, special: frozenset[str] | set[str] = frozenset()) -> str:
    """Return that no result of a test has a figure of this name, and what may have been meant."""
    known = [each.removesuffix(_ANY) for each in FIGURE_NAMES[test]] + sorted(special)
    bases = dict.fromkeys([*known, *(each.partition(".")[0] for each in known)])
    near = similar_words(name, list(bases))
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(known)}"
    return f"is no figure of {test}: {hint}"
