"""How long `tidegauge play` takes until its first cluster is on the screen, in a headless Chromium from a local server.

Each start has a profile of its own, so that nothing is cached ("first"), and then loads the page once more from what
the service worker has kept ("again"). Times come from the page's own marks; the CPU time covers all processes
of the browser, until the cluster was drawn.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from tests.integration.chromium import Page, chromium

TIDEGAUGE = str(Path(sys.executable).parent / "tidegauge")
_DRAWN = "performance.getEntriesByName('play-state').length > 0"
_MARKS = "Object.fromEntries(performance.getEntriesByType('mark').map(one => [one.name, one.startTime]))"
_KEPT = "navigator.serviceWorker.ready.then(() => true)"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def _cpu_seconds(profile: Path) -> float:
    """CPU time of the living processes that have this profile, and of their children."""
    found: dict[int, tuple[int, int]] = {}
    roots = set()
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            command = (directory / "cmdline").read_bytes()
            fields = (directory / "stat").read_text().rpartition(") ")[2].split()
        except OSError:  # it has ended
            continue
        found[int(directory.name)] = int(fields[1]), sum(map(int, fields[11:15]))
        if f"--user-data-dir={profile}".encode() in command:
            roots.add(int(directory.name))
    while more := {pid for pid, (parent, _) in found.items() if parent in roots} - roots:
        roots |= more
    return sum(found[pid][1] for pid in roots) / _TICKS_PER_SECOND


def _started(page: Page, url: str, profile: Path) -> dict[str, float]:
    """Seconds until each of the page's marks, and of CPU."""
    page.open("about:blank")
    page.until("location.href === 'about:blank'")
    before = _cpu_seconds(profile)
    page.open(url)
    page.until(f"document.readyState !== 'loading' && {_DRAWN}", 300)
    spent = _cpu_seconds(profile) - before
    marks: dict[str, float] = page.run(_MARKS)
    return {name: at_ms / 1000 for name, at_ms in marks.items()} | {"cpu": spent}


def measure(url: str) -> dict[str, dict[str, float]]:
    """Start once and once more, with a profile of their own."""
    with tempfile.TemporaryDirectory() as scratch, chromium(Path(scratch)) as page:
        page.look(1280, 900, dark=False)
        first = _started(page, url, Path(scratch))
        page.run(_KEPT)
        return {"first": first, "again": _started(page, url, Path(scratch))}


def main() -> None:
    """Measure, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="starts (default 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    wanted = parser.parse_args()
    server = subprocess.Popen([TIDEGAUGE, "play", "-o", "json"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        url = json.loads(server.stdout.readline())["url"]
        found: list[dict[str, Any]] = []
        for _ in range(wanted.times):
            found.append({**measure(url), "load": os.getloadavg()[0]})
            sys.stderr.write(f"{json.dumps(found[-1])}\n")
    finally:
        server.kill()
        server.wait()
    for kind in ("first", "again"):
        marks = {name: median(one[kind][name] for one in found) for name in found[0][kind]}
        times = ", ".join(f"{name.removeprefix('play-')} {at:.2f} s" for name, at in marks.items())
        sys.stdout.write(f"{kind}: {times}\n")
    loads = [one["load"] for one in found]
    sys.stdout.write(f"load {min(loads):.1f} to {max(loads):.1f}, {wanted.times} starts, medians\n")
    if wanted.json:
        wanted.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
