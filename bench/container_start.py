"""How long the container of a whole cluster takes to be ready, beside ``tidegauge up`` on the same machine, by turns.

Both are begun from the shell, with the control interface, and are ready when its wait for ``ready`` returns. Needs a
Docker engine and the image (docs/containers.md).
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "python"))

from steering import Control

CONTROL = 19079
BOUND_SECONDS = 180.0
PAUSE_SECONDS = 0.02


def run(*words: str) -> str:
    """Run a command; return its stdout."""
    return subprocess.run(words, capture_output=True, text=True, timeout=BOUND_SECONDS, check=True).stdout


def wait_ready(url: str, began: float) -> None:
    """Wait until the interface listens and says ready.

    Raises:
        TimeoutError: it does not within ``BOUND_SECONDS``.
    """
    while time.monotonic() - began < BOUND_SECONDS:
        # A mapped port takes connections, and closes them, before anything listens behind it.
        with contextlib.suppress(OSError, http.client.HTTPException):
            Control(url).wait(ready=True, timeout_ms=int(BOUND_SECONDS * 1000))
            return
        time.sleep(PAUSE_SECONDS)
    raise TimeoutError(f"{url} is not ready after {BOUND_SECONDS:g} s")


def of_container(image: str) -> float:
    """Start a container; return the seconds until it is ready."""
    began = time.monotonic()
    name = run("docker", "run", "--detach", "--publish", f"127.0.0.1::{CONTROL}", image).strip()
    try:
        wait_ready("http://" + run("docker", "port", name, str(CONTROL)).split()[0], began)
        return time.monotonic() - began
    finally:
        run("docker", "rm", "--force", "--volumes", name)


def of_up() -> float:
    """Start a cluster on this machine; return the seconds until it is ready."""
    program = str(Path(sys.executable).parent / "tidegauge")
    directory = tempfile.mkdtemp(prefix="container-start-")
    began = time.monotonic()
    words = ("up", "--detach", "--control", "127.0.0.1:0", "--output", "json", "--dir", f"{directory}/cluster")
    try:
        wait_ready(json.loads(run(program, *words))["control"], began)
        return time.monotonic() - began
    finally:
        run(program, "down", "--dir", f"{directory}/cluster")
        shutil.rmtree(directory)


def main() -> None:
    """Print each round, and the medians with their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--image", default="tidegauge-cluster")
    arguments = parser.parse_args()
    rounds = []
    for number in range(arguments.rounds):
        if number % 2:
            container, up = of_container(arguments.image), of_up()
        else:
            up, container = of_up(), of_container(arguments.image)
        rounds.append((up, container))
        print(f"up {up:.2f} s, container {container:.2f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    up, container = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(f"median: up {up:.2f} s, container {container:.2f} s, {container / up:.2f} times")


if __name__ == "__main__":
    main()
