"""Drives a real headless Firefox by WebDriver BiDi, with aiohttp alone."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import tempfile
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from aiohttp import ClientSession, ClientWebSocketResponse

from tests.support.browser import PageError
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_FLAGS = ("--headless", "--no-remote", "--remote-debugging-port=0")
_SAID = re.compile(r"WebDriver BiDi listening on (ws://\S+)")


class FirefoxPage:
    """A tab of Firefox."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        """Take over a socket."""
        self._socket = socket
        self._numbers = count(1)
        self._context = ""
        self.complaints: list[str] = []

    async def prepared(self) -> FirefoxPage:
        """Begin a session, with the only tab that there is, and listen to its log."""
        await self.call("session.new", capabilities={})
        await self.call("session.subscribe", events=["log.entryAdded"])
        tree = await self.call("browsingContext.getTree")
        self._context = tree["contexts"][0]["context"]
        return self

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method and return its result; keep what scripts complain of meanwhile."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE_S):
            while (message := await self._socket.receive_json()).get("id") != number:
                if message.get("method") == "log.entryAdded":
                    self._heard(message["params"])
        if message["type"] == "error":
            msg = f"{method}: {message['message']}"
            raise PageError(msg)
        result: dict[str, Any] = message["result"]
        return result

    def _heard(self, entry: dict[str, Any]) -> None:
        if entry["level"] in {"error", "warn"}:
            self.complaints.append(str(entry["text"]))

    async def open(self, url: str) -> None:
        """Go to an address."""
        await self.call("browsingContext.navigate", context=self._context, url=url, wait="complete")

    async def evaluate(self, expression: str) -> Any:
        """Evaluate an expression in the page, awaiting it if it is a promise; return plain values.

        :raises PageError: it throws.
        """
        answer = await self.call(
            "script.evaluate",
            expression=f"(async () => JSON.stringify(await ({expression})) ?? 'null')()",
            target={"context": self._context},
            awaitPromise=True,
        )
        if answer["type"] == "exception":
            raise PageError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    async def until(self, condition: str) -> None:
        """Wait until a condition holds in the page; errors count as not yet."""
        script = f"""new Promise((resolve) => {{
            const holds = () => {{ try {{ return {condition}; }} catch {{ return false; }} }};
            const look = () => (holds() ? resolve(true) : setTimeout(look, 16));
            look();
        }})"""
        try:
            await self.evaluate(script)
        except TimeoutError:
            text = await self.evaluate("document.body.innerText.slice(0, 1500)")
            msg = f"never became true: {condition}\n--- the page says:\n{text}"
            raise PageError(msg) from None


@asynccontextmanager
async def firefox() -> AsyncIterator[FirefoxPage]:
    """Start a Firefox with a profile of its own; yield its tab."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            *("firefox-esr", *_FLAGS, "--profile", profile, "about:blank"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            address = await _address(process)
            async with (
                ClientSession() as session,
                session.ws_connect(f"{address}/session", max_msg_size=0) as socket,
            ):
                yield await FirefoxPage(socket).prepared()
        finally:
            process.terminate()
            await process.communicate()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = []
    async with asyncio.timeout(PATIENCE_S):
        async for line in process.stderr:
            said.append(line.decode(errors="replace"))
            if found := _SAID.search(said[-1]):
                return found[1]
    msg = f"firefox ended: {''.join(said)}"
    raise PageError(msg)
