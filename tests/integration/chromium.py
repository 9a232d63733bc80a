"""A real headless Chromium, driven through its DevTools protocol over a pipe: no driver, no WebSocket, no download.

Chromium is the one of the system (Debian's package ``chromium``); who has none skips.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any

import pytest
from tests.waiting import until

RESPONSE_SECONDS = 60.0
_READ_FD, _WRITE_FD = 3, 4  # where Chromium reads and writes


class Page:
    """One tab."""

    def __init__(self, commands: int, responses: int) -> None:
        self._commands, self._responses = commands, responses
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            response = self._next()
            if response.get("id") == self._number:
                assert "error" not in response, f"{method}: {response['error']}"
                return response["result"]
            if response.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(str(response["params"]["exceptionDetails"]))
            elif response.get("method") == "Log.entryAdded":
                self.complaints.append(str(response["params"]["entry"].get("text")))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select([self._responses], [], [], RESPONSE_SECONDS)[0], "Chromium does not answer"
            part = os.read(self._responses, 1 << 20)
            assert part, "Chromium has ended"
            self._rest += part
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        response = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in response, response["exceptionDetails"]
        return response["result"].get("value")

    def until(self, expression: str, timeout: float = 150.0) -> Any:
        return until(lambda: self.run(expression), timeout, expression)

    def look(self, width: int, height: int, *, dark: bool, still: bool = False) -> None:
        """The window's size, and the system's choice of colours and of motion."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        motion = {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, motion])

    def press(self, key: str, code: int) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def type(self, character: str) -> None:
        """Press a key that gives a character."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=character, text=character)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=character)

    def accessible(self) -> list[tuple[str, str]]:
        """Role and name of what a screen reader is given."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
        ]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """A browser with one tab and a profile of its own; skips without one."""
    command = shutil.which("chromium") or shutil.which("chromium-browser")
    if command is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    commands_in, commands = os.pipe()
    responses, responses_out = os.pipe()
    # Bash gives Chromium the two ends at the descriptors that it expects.
    redirect = f'exec "$0" "$@" {_READ_FD}<&{commands_in} {_WRITE_FD}>&{responses_out}'
    options = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--remote-debugging-pipe", "--no-proxy-server", "--disable-background-networking", "--hide-scrollbars"),
        f"--user-data-dir={profile}",
    ]
    process = subprocess.Popen(
        ["bash", "-c", redirect, command, *options],
        pass_fds=(commands_in, responses_out),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(commands_in)
    os.close(responses_out)
    try:
        yield Page(commands, responses)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(commands)
        os.close(responses)
        # Renderers have groups of their own, and end a moment after the browser has.
        until(lambda: not any(map(_has(f"--user-data-dir={profile}"), Path("/proc").glob("[0-9]*/cmdline"))), 60)


def _has(argument: str) -> Callable[[Path], bool]:
    """Return a check whether a process was started with an argument."""

    def has(file: Path) -> bool:
        try:
            return argument.encode() in file.read_bytes().replace(b" ", b"\0").split(b"\0")
        except OSError:  # it has ended
            return False

    return has
