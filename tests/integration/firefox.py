"""A real headless Firefox, driven through Marionette, its own protocol: no driver, no download.

Firefox is the one of the system (Debian's package ``firefox-esr``); who has none skips. Expressions see the page's
document, and not what its scripts declare with ``const``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

RESPONSE_SECONDS = 120.0
_PREFERENCES = {
    "marionette.port": 0,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.proxy.type": 0,
    "app.update.disabledForTesting": True,
    "intl.accept_languages": "en",
}


class FirefoxPage:
    """One tab."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""
        self._number = 0
        self._read()  # it says its version first
        self.call("WebDriver:NewSession", {})

    def call(self, command: str, values: dict[str, Any]) -> Any:
        self._number += 1
        message = json.dumps([0, self._number, command, values]).encode()
        self._connection.sendall(b"%d:%b" % (len(message), message))
        _, number, error, result = self._read()
        assert number == self._number
        assert error is None, f"{command}: {error}"
        return result

    def _read(self) -> Any:
        while b":" not in self._rest:
            self._rest += self._part()
        length, _, rest = self._rest.partition(b":")
        while len(rest) < int(length):
            rest += self._part()
        self._rest = rest[int(length) :]
        return json.loads(rest[: int(length)])

    def _part(self) -> bytes:
        part = self._connection.recv(1 << 16)
        assert part, "Firefox has ended"
        return part

    def open(self, url: str) -> None:
        self.call("WebDriver:Navigate", {"url": url})

    def run(self, expression: str) -> Any:
        return self.call("WebDriver:ExecuteScript", {"script": f"return {expression}", "args": []})["value"]

    def until(self, expression: str, timeout: float = 150.0) -> Any:
        return until(lambda: self.run(expression), timeout, expression)


@contextmanager
def firefox(profile: Path) -> Iterator[FirefoxPage]:
    """A browser with one tab and a profile of its own; skips without one."""
    command = shutil.which("firefox-esr") or shutil.which("firefox")
    if command is None:
        pytest.skip("no Firefox on this machine (Debian: apt-get install firefox-esr)")
    profile.mkdir(parents=True)
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in _PREFERENCES.items()]
    (profile / "user.js").write_text("".join(lines))
    process = subprocess.Popen(
        [command, "--headless", "--marionette", "--no-remote", "--profile", profile, "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={"HOME": str(profile), "PATH": "/usr/bin:/bin", "MOZ_HEADLESS": "1"},
    )
    try:
        active = profile / "MarionetteActivePort"
        until(lambda: active.is_file() and active.read_text().strip(), 120, "Firefox listens")
        with closing(socket.create_connection(("127.0.0.1", int(active.read_text())), RESPONSE_SECONDS)) as connection:
            yield FirefoxPage(connection)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
