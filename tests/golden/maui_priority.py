"""Maui's priorities, translated: terms, weights, caps, fairshare, targets."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from lead.policy.order.weighted import Weights, expansion_factor, names_by_priority, urgency
from lead.policy.share.decayed_windows import decayed_sum, deltas, usage
from lead.policy.view import FairshareKind, FairshareView
from tests.golden.figures import figure, first_given
from tests.golden.originals.weighted_sum import priority, weighed

Given = dict[str, Any]

_COMPONENTS: dict[str, tuple[str, ...]] = {
    "CRED": ("USER", "GROUP", "ACCOUNT", "QOS", "CLASS"),
    "FS": ("FSUSER", "FSGROUP", "FSACCOUNT", "FSQOS", "FSCLASS"),
    "RES": ("NODE", "PROC", "PS", "WALLTIME"),
    "SERV": ("QUEUETIME", "XFACTOR", "BYPASS"),
    "TARG": ("TARGETQUEUETIME", "TARGETXFACTOR"),
}
_DEFAULT = {"QUEUETIME": 1}
_KINDS = {
    "target": FairshareKind.TARGET,
    "floor": FairshareKind.FLOOR,
    "+": FairshareKind.FLOOR,
    "ceiling": FairshareKind.CEILING,
    "-": FairshareKind.CEILING,
}


def answer(given: Given) -> Given:
    """Return the product's answer to a case about priorities."""
    for required, translate in _TRANSLATORS:
        if required <= given.keys():
            return translate(given)
    msg = f"no question is known with the fields {', '.join(sorted(given))}"
    raise ValueError(msg)


# -- fairshare -------------------------------------------------------------------------------------


def _exact(number: float) -> Fraction:
    return Fraction(str(number))


def _fairshare(given: Given) -> Given:
    fairshares: dict[str, FairshareView | None] = {}
    for name, target in given["targets"].items():
        fairshares[name] = None
        if target is not None:
            part, kind = target if isinstance(target, list) else (target, "target")
            fairshares[name] = FairshareView(_exact(part) / 100, _KINDS[kind])
    used = {name: _exact(it) / 100 for name, it in given["usage"].items()}
    differences = deltas(fairshares, used, relative=given.get("form") == "ratio")
    terms = {name: given["weights"].get(name, 0) for name in differences}
    weights = Weights({"FS": terms}, {"FS": given["weights"].get("FS", 1)})
    values = {"FS": {name: float(it) for name, it in differences.items()}}
    return {
        "deltas": {name: figure(it) for name, it in differences.items()},
        "priority": figure(weighed(values, weights)),
    }


def _windows(given: Given) -> Given:
    decay = _exact(given["decay"])
    depth = given.get("depth", len(given["total"]))
    own, total = ([_exact(it) for it in given[key][:depth]] for key in ("user", "total"))
    return {
        "numerator": figure(decayed_sum(own, decay)),
        "denominator": figure(decayed_sum(total, decay)),
        "usage": figure(usage(own, total, decay)),
    }


# -- terms -----------------------------------------------------------------------------------------


def _expansions(given: Given) -> Given:
    factors = [
        expansion_factor(item["wait"], item["wallclock"], item.get("min_wallclock", 0))
        for item in given["items"]
    ]
    return {"xfactor": [figure(it) for it in factors]}


def _targets(given: Given) -> Given:
    target, reached = (
        (given["target_minutes"], given["waited_minutes"])
        if "target_minutes" in given
        else (given["target_xfactor"], given["xfactor"])
    )
    return {"factor": [figure(urgency(target, it)) for it in reached]}


# -- the weighted sum ------------------------------------------------------------------------------


def _values(job: Given) -> dict[str, dict[str, float]]:
    """Return the value of every term for a job, under the names of the weights."""
    waited = job.get("wait_minutes", 0)
    length = job.get("duration_minutes", 0)
    values: dict[str, float] = {
        "QUEUETIME": waited,
        "XFACTOR": expansion_factor(waited, length, job.get("min_wallclock_minutes", 0)),
        "BYPASS": job.get("bypass", 0),
        "NODE": job.get("nodes", 0),
        "PROC": job.get("procs", 0),
        "PS": job.get("procs", 0) * length * 60,
        "WALLTIME": length * 60,
    }
    if "target_minutes" in job:
        values["TARGETQUEUETIME"] = urgency(job["target_minutes"], waited)
    if "target_xfactor" in job:
        values["TARGETXFACTOR"] = urgency(job["target_xfactor"], values["XFACTOR"])
    for name in _COMPONENTS["CRED"]:
        values[name] = job.get(f"{name.lower()}_priority", 0)
        values[f"FS{name}"] = job.get("fs_deltas", {}).get(name.lower(), 0)
    return {
        component: {term: values.get(term, 0) for term in terms}
        for component, terms in _COMPONENTS.items()
    }


def _weights(given: Given, caps: Given) -> Weights:
    weights = {**_DEFAULT, **given.get("weights", {})}
    return Weights(
        terms={
            name: {term: weights.get(term, 0) for term in terms}
            for name, terms in _COMPONENTS.items()
        },
        components={name: weights.get(name, 1) for name in _COMPONENTS},
        term_caps={
            name: {term: caps[term] for term in terms if term in caps}
            for name, terms in _COMPONENTS.items()
        },
        component_caps={name: caps[name] for name in _COMPONENTS if name in caps},
    )


def _sums(given: Given) -> Given:
    """Return one priority for each set of caps."""
    caps = {key: it for key, it in given.items() if key == "caps" or key.startswith("caps_")}
    values, system = _values(given), given.get("system_priority", 0)
    return {
        key.replace("caps", "priority"): figure(priority(values, _weights(given, it), system))
        for key, it in (caps or {"caps": {}}).items()
    }


def _queue(given: Given) -> Given:
    """Return the priorities of several jobs and their order, ties by waiting time."""
    weights = _weights(given, given.get("caps", {}))
    jobs = {job["id"]: _waiting(job, given["now"]) for job in given["jobs"]}
    priorities = {
        name: priority(_values(job), weights, job.get("system_priority", 0))
        for name, job in jobs.items()
    }
    ranked = [(name, priorities[name], jobs[name]["wait_minutes"]) for name in _as_submitted(jobs)]
    return {
        "priority": {name: figure(it) for name, it in priorities.items()},
        "order": names_by_priority(ranked),
    }


def _waiting(job: Given, now: float) -> Given:
    since = first_given(job, "eligible_since", "submitted", default=now)
    waiting = {"wait_minutes": (now - since) / 60, **job}
    if "duration" in job:
        waiting.setdefault("duration_minutes", job["duration"] / 60)
    return waiting


def _as_submitted(jobs: dict[str, Given]) -> list[str]:
    """Return the names as listed or by submission; a job later than another follows it."""
    names = sorted(jobs, key=lambda name: jobs[name].get("submitted", 0))
    for name in list(names):
        earlier = jobs[name].get("submitted_later_than")
        if earlier in names and names.index(earlier) > names.index(name):
            names.remove(name)
            names.insert(names.index(earlier) + 1, name)
    return names


_TRANSLATORS: tuple[tuple[set[str], Callable[[Given], Given]], ...] = (
    ({"targets", "usage", "weights"}, _fairshare),
    ({"decay", "user", "total"}, _windows),
    ({"target_minutes", "waited_minutes"}, _targets),
    ({"target_xfactor", "xfactor"}, _targets),
    ({"wait_minutes", "weights"}, _sums),
    ({"now", "jobs"}, _queue),
    ({"items"}, _expansions),
)
"""The fields that a case must have, and its translator."""
