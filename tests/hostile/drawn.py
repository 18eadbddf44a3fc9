"""Requests that schemathesis draws from the description of the API, faulty ones and sound ones.

Drawing takes longer than sending. So it is done in a process of its own, from first to last, while
other requests are sent.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from node.cli.lab.nodes import module_environment
from node.execution import process
from node.execution.process import RunningProcess
from tests.hostile.messages import Actor, Message, permitted
from tests.hostile.scene import Scene

_SLOW = {"POST /v1/tasks", "POST /v1/plans", "PATCH /v1/tasks/{id}", "POST /v1/limits/trials"}
"""Operations whose documents are large: of these a third is drawn."""

_ENDLESS = "/v1/events"
_WORD_MAX = 4000


_OUTPUT_MAX = 100_000_000


@dataclass(frozen=True)
class Drawn:
    """A request to an operation, without credentials."""

    route: str
    kind: str
    target: str
    body: str
    headers: dict[str, str]


async def start(description: Any, seed: int, number: int) -> RunningProcess:
    """Begin to draw in another process; :func:`finish` returns what it has drawn."""
    asked = json.dumps([description, seed, number]).encode()
    argv = [sys.executable, "-m", "tests.hostile.drawn"]
    root, settings = Path(__file__).parents[2], module_environment()
    return await process.start(
        argv, stdin=asked, env=settings, cwd=root, output_bytes_max=_OUTPUT_MAX
    )


async def finish(running: RunningProcess) -> list[Drawn]:
    """Wait until all is drawn, and return it; nothing if the process was ended before."""
    finished = await running.wait()
    return [Drawn(**each) for each in json.loads(finished.stdout or b"[]")]


def draw(description: Any, seed: int, number: int) -> list[Drawn]:
    """Return requests for each operation of a description, about so many of each kind."""
    import schemathesis  # noqa: PLC0415 - it takes two seconds, in the process that draws
    from schemathesis import GenerationMode  # noqa: PLC0415

    warnings.simplefilter("ignore")
    drawn: list[Drawn] = []
    for result in schemathesis.openapi.from_dict(description).get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]  # it is sound
        for mode in (GenerationMode.NEGATIVE, GenerationMode.POSITIVE):
            few = max(1, number // 3)
            wanted = few if operation.label in _SLOW else number
            cases = _cases(operation.as_strategy(generation_mode=mode), seed, wanted)
            drawn += [_of(operation.label, mode.value, case) for case in cases]
    return drawn


def _cases(strategy: Any, seed: int, number: int) -> list[Any]:
    """Return examples of a strategy; none if nothing about an operation can be wrong."""
    import hypothesis  # noqa: PLC0415
    from hypothesis.errors import HypothesisException  # noqa: PLC0415

    cases: list[Any] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def collect(case: Any) -> None:
        cases.append(case)

    try:
        collect()
    except HypothesisException:
        return cases
    return cases


def _of(route: str, kind: str, case: Any) -> Drawn:
    """Return a case of schemathesis as it is sent."""
    path = case.path
    for name, value in (case.path_parameters or {}).items():
        path = path.replace(f"{{{name}}}", _word(value))
    query = _words(case.query or {})
    headers = {
        name: str(value) for name, value in (case.headers or {}).items() if _is_sendable(str(value))
    }
    body = ""
    if case.body is not None and type(case.body).__name__ != "NotSet":
        is_text = isinstance(case.body, bytes)
        body = case.body.decode(errors="replace") if is_text else _json(case.body)
    return Drawn(route, kind, f"{path}?{query}" if query else path, body, headers)


def _words(query: dict[str, Any]) -> str:
    return urlencode({name: _text(value)[:_WORD_MAX] for name, value in query.items()})


def _word(value: Any) -> str:
    return quote(_text(value).encode("utf-8", "surrogatepass"), safe="")[:_WORD_MAX] or "x"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text.encode("utf-8", "replace").decode()


def _json(value: Any) -> str:
    return json.dumps(value, default=str)


def _is_sendable(text: str) -> bool:
    return text.isascii() and text.isprintable() and len(text) < _WORD_MAX


def messages(scene: Scene, drawn: list[Drawn], rng: random.Random) -> Iterator[Message]:
    """Yield drawn requests as those who may send them, and now and then as others.

    Sound ones that change something are sent to node c, as they may reserve or remove what an
    honest user of node a needs.
    """
    for each in drawn:
        method = each.route.split(" ", 1)[0]
        if method == "DELETE" and "/nodes/" in each.route:
            continue
        able = [
            actor
            for actor in (Actor.OWN, Actor.OPERATE, Actor.RUN, Actor.READ)
            if permitted(actor, each.route) is None
        ]
        others = rng.random() < 0.2 or not able
        actor = rng.choice(list(Actor)) if others else rng.choice(able)
        if each.route.endswith(_ENDLESS) and permitted(actor, each.route) is None:
            continue
        yield Message(
            "drawn",
            each.kind,
            method,
            each.target,
            actor,
            each.body.encode("utf-8", "replace"),
            {name: value for name, value in each.headers.items() if name != "Authorization"},
            node=2 if method != "GET" else rng.randrange(3),
            allowed=None,
        )


if __name__ == "__main__":
    print(json.dumps([asdict(each) for each in draw(*json.load(sys.stdin))]))
