"""toxiproxy, which some suites steer: a proxy in front of each broker, at the address that the broker advertises."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from fetched import Unavailable, kept

from outside.packages import program, run

MODULE = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
READY_SECONDS = 60.0


def toxiproxy() -> Path:
    """Return the program, built by Go.

    Raises:
        Unavailable: Go is missing, or the module proxy can't be reached.
    """

    def build(directory: Path) -> None:
        run([program("go", "Go"), "install", MODULE], directory, {"GOBIN": str(directory)})

    return kept("outside-toxiproxy-2.5.0", build) / "server"


def require_free(ports: Mapping[str, int]) -> None:
    """Refuse to run where a port that a suite names is taken.

    Raises:
        Unavailable: it is.
    """
    for port in ports.values():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise Unavailable(f"port {port}, which the suite names, is taken") from None


@contextlib.contextmanager
def proxies(ports: Mapping[str, int], upstream: Mapping[str, str]) -> Iterator[str]:
    """Run proxies by name on these ports of 127.0.0.1, each to its upstream; yield the address that steers them.

    Raises:
        Unavailable: a port is taken, or the program can't be had.
    """
    require_free(ports)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        steered = int(probe.getsockname()[1])
    command = [str(toxiproxy()), "-host", "127.0.0.1", "-port", str(steered)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            address = f"http://127.0.0.1:{steered}"
            for name, port in ports.items():
                _create(address, {"name": name, "listen": f"127.0.0.1:{port}", "upstream": upstream[name]})
            yield address
        finally:
            process.kill()


def _create(address: str, proxy: Mapping[str, object]) -> None:
    body = json.dumps({**proxy, "enabled": True}).encode()
    request = urllib.request.Request(f"{address}/proxies", body, {"Content-Type": "application/json"})  # noqa: S310 - http
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=READY_SECONDS):  # noqa: S310 - http
                return
        except urllib.error.HTTPError as refused:
            raise Unavailable(f"toxiproxy refuses {proxy}: {refused}") from None
        except OSError:
            if time.monotonic() > deadline:
                raise Unavailable("toxiproxy does not start") from None
            time.sleep(0.05)
