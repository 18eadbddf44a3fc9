"""Drives a real headless Chromium through the DevTools protocol, with aiohttp alone.

Nothing here waits for a fixed time: every wait is for an event of the browser or for a condition
that the page itself evaluates each frame, with a deadline.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
import tempfile
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)


class PageError(AssertionError):
    """The page or the browser did not do what was requested."""


@contextmanager
def chromium() -> Iterator[str]:
    """Start a browser with its own profile; yield the address of its DevTools socket."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        msg = "chromium is not installed: apt-get install chromium"
        raise PageError(msg)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={Path(profile) / 'data'}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield _address(process)
        finally:
            process.terminate()
            process.communicate()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if found := re.search(r"DevTools listening on (ws://\S+)", line):
            return found[1]
    msg = f"chromium ended: {''.join(said)}"
    raise PageError(msg)


@asynccontextmanager
async def new_page(address: str) -> AsyncIterator[Page]:
    """Open a page in a context of its own, with its own storage, and close it afterwards."""
    async with ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
        connection = Connection(socket)
        reader = asyncio.create_task(connection.read())
        try:
            context = await connection.call("Target.createBrowserContext")
            target = await connection.call("Target.createTarget", url="about:blank", **context)
            attached = await connection.call(
                "Target.attachToTarget", targetId=target["targetId"], flatten=True
            )
            try:
                yield await Page(connection, attached["sessionId"]).prepared()
            finally:
                await connection.call("Target.disposeBrowserContext", **context)
        finally:
            reader.cancel()


class Connection:
    """One DevTools socket: numbers the calls and keeps the events."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        """Take over an open socket."""
        self._socket = socket
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self.events: list[dict[str, Any]] = []

    async def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Call a method and return its result."""
        self._number += 1
        answer = asyncio.get_running_loop().create_future()
        self._answers[self._number] = answer
        message = {"id": self._number, "method": method, "params": params}
        await self._socket.send_json(message | ({"sessionId": session} if session else {}))
        async with asyncio.timeout(PATIENCE_S):
            message = await answer
        if "error" in message:
            error = f"{method}: {message['error']}"
            raise PageError(error)
        result: dict[str, Any] = message["result"]
        return result

    async def read(self) -> None:
        """Deliver each answer to its call, and keep the other messages as events."""
        async for frame in self._socket:
            if frame.type is not WSMsgType.TEXT:
                break
            message = json.loads(frame.data)
            if "id" in message:
                self._answers.pop(message["id"]).set_result(message)
            else:
                self.events.append(message)


class Page:
    """A tab, and what a person does with it."""

    def __init__(self, connection: Connection, session: str) -> None:
        """Take over an attached tab."""
        self._connection = connection
        self._session = session

    async def prepared(self) -> Self:
        """Listen to all events of the page, and set its time zone to Berlin."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.call(f"{domain}.enable")
        await self.call("Emulation.setTimezoneOverride", timezoneId="Europe/Berlin")
        await self.resize(1440, 900)
        return self

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a DevTools method for this tab."""
        return await self._connection.call(method, self._session, **params)

    async def open(self, url: str) -> None:
        """Go to an address."""
        # The host's interfaces may change at any moment, which breaks whatever is under way.
        while "NETWORK_CHANGED" in (await self.call("Page.navigate", url=url)).get("errorText", ""):
            pass

    async def resize(
        self, width: int, height: int, *, density: float = 1, dark: bool = False
    ) -> None:
        """Set the size and the colour scheme of the window."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=density,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def evaluate(self, expression: str) -> Any:
        """Evaluate an expression in the page, awaiting it if it is a promise."""
        answer = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise PageError(answer["exceptionDetails"]["exception"].get("description", expression))
        return answer["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait until a condition holds in the page; errors count as not yet."""
        script = f"""new Promise((resolve) => {{
            const holds = () => {{ try {{ return {condition}; }} catch {{ return false; }} }};
            const look = () => (holds() ? resolve(true) : setTimeout(look, 16));
            look();
        }})"""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await self._holds(script):
                    pass
        except TimeoutError:
            text = await self.evaluate("document.body.innerText.slice(0, 1500)")
            msg = f"never became true: {condition}\n--- the page says:\n{text}"
            raise PageError(msg) from None

    async def _holds(self, script: str) -> bool:
        try:
            await self.evaluate(script)
        except PageError as error:
            # The page was on its way to another document, or to itself again: look there.
            if "navigated or closed" in str(error) or "context was destroyed" in str(error):
                return False
            raise
        return True

    async def text(self, selector: str) -> str:
        """Return the visible text of the first element that matches."""
        found = await self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")
        return str(found)

    async def click(self, selector: str) -> None:
        """Click in the middle of the first element that matches."""
        box = await self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        await self.click_at(*box)

    async def click_at(self, x: float, y: float) -> None:
        """Press and release the mouse at a point of the window."""
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    async def press(self, key: str) -> None:
        """Press and release one key."""
        codes = {"Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, "Tab": 9}
        text = {"text": "\r"} if key == "Enter" else {}
        shared = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **shared, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    async def type(self, text: str) -> None:
        """Type a text at the focus."""
        await self.call("Input.insertText", text=text)

    async def picture(self, **form: Any) -> bytes:
        """Return the window as a picture: PNG, unless ``form`` says something else."""
        shot = await self.call("Page.captureScreenshot", optimizeForSpeed=True, **form)
        return base64.b64decode(shot["data"])

    def requests(self) -> list[str]:
        """Return every address that the page has requested."""
        return [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]

    def received(self) -> int:
        """Return the bytes of all answers as they came over the wire, those of streams included."""
        ended = {
            event["requestId"]: event["encodedDataLength"]
            for event in self._events("Network.loadingFinished")
        }
        open_still = (
            event["encodedDataLength"]
            for event in self._events("Network.dataReceived")
            if event["requestId"] not in ended
        )
        return int(sum(ended.values()) + sum(open_still))

    def complaints(self) -> list[str]:
        """Return errors and warnings of scripts, of the console, and of the browser's own log.

        Requests that broke because the host's interfaces changed are left out. That happens when
        labs in network namespaces start and stop, and the page has to cope with it.
        """
        thrown = [json.dumps(event) for event in self._events("Runtime.exceptionThrown")]
        said = [
            json.dumps(event["args"])
            for event in self._events("Runtime.consoleAPICalled")
            if event["type"] in {"error", "warning", "assert"}
        ]
        logged = [
            event["entry"]["text"]
            for event in self._events("Log.entryAdded")
            if event["entry"]["level"] in {"error", "warning"}
        ]
        return [text for text in thrown + said + logged if "ERR_NETWORK_CHANGED" not in text]

    def _events(self, method: str) -> Iterator[dict[str, Any]]:
        for event in self._connection.events:
            if event["method"] == method and event.get("sessionId") == self._session:
                yield event["params"]
