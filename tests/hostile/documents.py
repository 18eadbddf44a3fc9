"""A sound document for each request that has one: what is hostile replaces parts of it."""

from __future__ import annotations

import time
import uuid
from typing import Any

from node.model import times
from tests.hostile.scene import Scene, Site

Json = Any
FAR = "2098-06-01T00:00:00Z"
IDLE = {"type": "idle", "spec": {"duration": "PT1S", "class": "background"}}


def of_users(site: Site) -> dict[str, Json]:
    """Return documents by route that a user, an operator, or the owner of a node may send."""
    task = {"test": IDLE, "schedule": {"start": FAR}}
    reservation = {"kind": "quiet", "name": "n", "duration": "PT1H", "schedule": {"start": FAR}}
    return {
        "POST /v1/tasks": task,
        "PATCH /v1/tasks/{id}": {"priority": 1},
        "POST /v1/plans": {**task, "runs": 2},
        "POST /v1/reservations": reservation,
        "PATCH /v1/reservations/{id}": {"name": "other"},
        "POST /v1/campaigns": {"name": "spare", "limits": {"runs": {"hard": 1000}}},
        "PATCH /v1/campaigns/{name}": {"description": "x"},
        "POST /v1/pools": {"name": "spare", "match": {"name": {"=": "nobody"}}},
        "PATCH /v1/pools/{name}": {"description": "x"},
        "POST /v1/archives": {
            "name": "spare",
            "archiver": "http",
            "spec": {"url": "http://127.0.0.1:9/"},
        },
        "PATCH /v1/archives/{name}": {"spec": {"url": "http://127.0.0.1:9/x"}},
        "POST /v1/archivings/retry": {"number": 2**40},
        "POST /v1/nodes": {"url": "http://127.0.0.1:9"},
        "PATCH /v1/nodes/{name}": {"attributes": {"country": "DE"}},
        "PUT /v1/shares": {"leads": [], "others": 1},
        "POST /v1/limits/trials": {"as": "c", "task": task},
        "POST /v1/secrets": {"name": "spare", "value": "word"},
        "POST /v1/tokens": {"label": "other", "role": "read", "expires_in": "PT1M"},
    }


def introduction(scene: Scene, site: Site, **changes: Any) -> dict[str, Any]:
    """Return the introduction of a small task at a node, by a peer that leads it."""
    participant = {
        "node": site.identity,
        "name": site.node.name,
        "url": site.node.url,
        "address": site.node.address,
    }
    return {
        "task": str(uuid.uuid4()),
        "test": "idle",
        "spec": {"duration": "PT3S", "class": "background", "participants": [site.node.name]},
        "tools": [],
        "tool": "sleep",
        "scheduling_class": "background",
        "duration": 3 * times.SECOND,
        "priority": 0,
        "participants": [participant],
        "participant": 0,
        "addresses": {},
        "schedule": {"repeat": "PT1H", "slip": "PT5M"},
        "campaign": None,
        "reference": None,
        "created_at": now(),
        **changes,
    }


def of_peers(scene: Scene, site: Site) -> dict[str, Json]:
    """Return documents by route that another node may send."""
    run, task = site.things["run"], site.things["task"]
    start = now() + times.HOUR
    proposal = {
        "task": task,
        "lease_epoch": 1,
        "scheduling_class": "background",
        "duration": 3 * times.SECOND,
        "priority": 0,
        "windows": [[start, start + times.HOUR]],
    }
    end = {"state": "cancelled", "reason": "because"}
    part: Json = {
        "run": run,
        "result": {},
        "reason": None,
        "started_at": start,
        "finished_at": start + 1,
        "command": ["sleep"],
    }
    card = {"identity": scene.peers[0].identity, "name": "mallory0", "url": None}
    return {
        "PUT tasks/{id}": introduction(scene, site),
        "POST considerations": introduction(scene, site),
        "POST campaigns/uses": {"campaigns": ["default"], "since": start},
        "POST outlooks": {
            "since": start,
            "scheduling_class": "exclusive",
            "priority": 0,
            "runs": [[start, start + times.MINUTE]],
        },
        "POST proposals": {"items": [proposal]},
        "POST holds": {"items": [hold_item(task, start)]},
        "POST rulings": {
            "items": [{"exchange": str(uuid.uuid4()), "commit": {"runs": [run], "data": {}}}]
        },
        "POST runs/ends": {"run": run, **end},
        "POST tasks/ends": {"task": task, **end},
        "POST tasks/confirmations": {"tasks": [task]},
        "POST tasks/freed": {"tasks": [task]},
        "POST intervals": {
            "run": run,
            "intervals": [{"number": 0, "result": {}, "reason": None}],
        },
        "POST parts": part,
        "POST digests": _digests(task, run, start),
        "POST work": {
            "card": {**card, "address": "192.0.2.1"},
            "now": now(),
            "shortfall": 0,
            "busy_until": 0,
            "wait": 0,
        },
        "POST errands": {
            "node": site.identity,
            "name": "x",
            "question": {"method": "GET", "path": "/v1/participant/limits", "headers": {}},
        },
    }


def _digests(task: str, run: str, start: int) -> Json:
    digest = {
        "task": task,
        "state": "active",
        "revision": 1,
        "terms": "x",
        "fingerprint": None,
    }
    return {"now": now(), "until": start, "tasks": [digest], "lacking": [run]}


def hold_item(task: str, start: int, **changes: Any) -> dict[str, Any]:
    """Return an exchange with one run of three seconds."""
    run = {
        "run": str(uuid.uuid4()),
        "slot": start,
        "attempt": 1,
        "starts_at": start,
        "ends_at": start + 3 * times.SECOND,
    }
    hold = {
        "task": task,
        "generation": str(uuid.uuid4()),
        "lease_epoch": 1,
        "tool": "sleep",
        "priority": 0,
        "life": 8 * times.SECOND,
        "runs": [run],
        **changes,
    }
    return {"exchange": str(uuid.uuid4()), "hold": hold}


def now() -> int:
    """Return the time in microseconds."""
    return int(time.time() * times.SECOND)
