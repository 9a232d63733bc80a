"""Makes docs/images: failover.svg, a run drawn from its events, terminal.svg, a recording of commands, and watch.png.

Real commands on real clusters of three brokers in a temporary directory; ``make pictures`` calls it. Parts that differ
by machine (the directory, ports, processes) are shown as a first ``tidegauge up`` shows it. watch.png is made by
a headless Chromium.

Both moving pictures stand alone: no script, no font or file from elsewhere. The lines of terminal.svg come as they came
in the terminal, long waits shortened; a reader who asked for less motion, or whose viewer shows none, sees them all.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import ioctl
from io import StringIO
from pathlib import Path
from select import select
from struct import pack
from termios import TIOCSWINSZ
from typing import NamedTuple

from rich.console import Console
from rich.text import Text
from tests.integration.chromium import Page, chromium
from tools import moving_picture

from tidegauge_lab.local.cluster import LocalCluster

IMAGES = Path(__file__).parents[1] / "docs" / "images"
BIN = Path(sys.executable).parent
COLUMNS, ROWS = 80, 40
PROMPT = "\x1b[1;32m$\x1b[0m "
LONGEST_WAIT_SECONDS = 1.2
BETWEEN_COMMANDS_SECONDS = 0.9
BETWEEN_LINES_SECONDS = 0.03

SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>A failover in a terminal</title>
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px;
}}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
/* motion */
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class Line(NamedTuple):
    """A line of the recording: when it came, and its text with colours."""

    at_seconds: float
    text: str


class Terminal:
    """Runs commands in a terminal of 80 columns and keeps what it shows."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "TIDEGAUGE_DIR"}},
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "TERM": "xterm-256color",
        }
        self._now = 0.4
        self.lines: list[Line] = []

    def run(self, command: str, *, until: str | None = None) -> None:
        """Run a command to its end, or until its screen holds a pattern: then it is interrupted."""
        self.lines.append(Line(self._now, PROMPT + command))
        self._now += BETWEEN_COMMANDS_SECONDS
        shown, last = "", time.monotonic()
        for part in self._output(command, until):
            now = time.monotonic()
            self._now += min(now - last, LONGEST_WAIT_SECONDS)
            last = now
            shown = (shown + part).rpartition("\x1b[H")[2]  # a screen that is painted again begins there
        text = re.sub(r"\x1b\[[KJ]|\^C", "", shown).replace("\r", "")
        for line in text.rstrip("\n").split("\n") if text else ():
            self.lines.append(Line(self._now, line))
            self._now += BETWEEN_LINES_SECONDS
        self.lines.append(Line(self._now, ""))
        self._now += BETWEEN_COMMANDS_SECONDS

    def _output(self, command: str, until: str | None) -> Iterator[str]:
        said = ""
        ours, theirs = pty.openpty()
        ioctl(theirs, TIOCSWINSZ, pack("HHHH", ROWS, COLUMNS, 0, 0))
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self._directory,
            env=self._environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        end = time.monotonic() + 120
        with suppress(OSError):  # EIO: the other end is closed
            while time.monotonic() < end and (part := os.read(ours, 65536) if select([ours], [], [], 60)[0] else b""):
                yield part.decode()
                said += part.decode()
                if until is not None and re.search(until, said):
                    process.terminate()
                    break
        os.close(ours)
        process.wait(30)


def svg(lines: list[Line]) -> str:
    """Return the recording as a picture that plays once."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    shown = [
        (line.at_seconds, part)
        for line in lines
        for part in Text.from_ansi(line.text).wrap(console, COLUMNS) or [Text()]  # one line of the picture each
    ]
    for _, part in shown:
        console.print(part)
    picture = console.export_svg(title="", code_format=SVG, unique_id="terminal")
    motion = [
        f'[clip-path="url(#terminal-line-{number})"]{{animation:come 1ms {at_seconds:.2f}s backwards}}'
        for number, (at_seconds, part) in enumerate(shown)
        if part
    ]
    styles = "@keyframes come{from{visibility:hidden}}\n@media (prefers-reduced-motion:no-preference){\n%s\n}"
    return picture.replace("/* motion */", styles % "\n".join(motion))


def terminal(directory: Path) -> str:
    """Record a leader that is killed and comes back."""
    screen = Terminal(directory)
    run(directory, "create-topic", "orders", "--replica-assignment", "2:0:1")
    screen.run("tidegauge produce orders --count 1000")
    screen.run("tidegauge kill --leader-of orders-0")
    screen.run("tidegauge wait --leader orders-0=0 && tidegauge produce orders --count 500")
    screen.run("tidegauge timeline --kind fault --kind election --kind role --since 20s")
    screen.run("tidegauge describe-topic orders --replicas --watch", until=r"broker 1.*1500.*1500.*\n")
    screen.run("tidegauge explain orders-0 | grep -A9 'Out of sync'")
    return svg(screen.lines)


LOST = 4
STORY = [
    ("tidegauge produce orders --count 6", "acks=all: acknowledged once every in-sync replica has the record."),
    ("tidegauge hold-fetch orders-0", "Both followers are held: they fetch nothing more."),
    (
        f"tidegauge produce orders --acks 1 --count {LOST}",
        f"acks=1: the leader alone acknowledges {LOST} records. The high watermark stays.",
    ),
    ("tidegauge kill --leader-of orders-0", "kill -9. The controller waits for its ZooKeeper session to end."),
    (
        "tidegauge faults --clear && tidegauge produce orders --count 3",
        "The followers fetch again. New records take the same offsets, in the new epoch.",
    ),
    ("tidegauge start {leader}", "The former leader comes back with its log."),
]
"""Commands in failover.svg, and the sentence below each."""


def failover(directory: Path) -> str:
    """Play a failover that loses records by Kafka's rules, and draw its events."""
    status = json.loads(run(directory, "status", "-o", "json"))
    leader, *others = sorted(range(3), key=lambda broker: (broker == status["controller"]["broker"], broker))
    run(directory, "create-topic", "orders", "--replica-assignment", ":".join(map(str, [leader, *others])))
    commands = []
    for words, caption in STORY:
        command = words.format(leader=leader)
        commands.append(moving_picture.Command(time.time_ns() // 1000, command, caption))
        for part in command.split(" && "):
            run(directory, *part.split()[1:], *(["--rate", "4"] if " produce " in part else []))
        if " kill " in command:
            run(directory, "wait", "--leader", f"orders-0!={leader}")
    run(directory, "wait", "--in-sync", "orders")
    lines = run(directory, "timeline", "--partition", "orders-0", "-o", "json").splitlines()
    return moving_picture.svg(moving_picture.film(map(json.loads, lines), commands, [leader, *others]))


def run(directory: Path, *arguments: str) -> str:
    """Run a verb on the cluster below the directory, and return what it prints."""
    command = [BIN / "tidegauge", *arguments, "--dir", directory / "tidegauge-data"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@contextmanager
def watching(directory: Path) -> Iterator[str]:
    """Return the address of a running ``tidegauge watch``."""
    command = [BIN / "tidegauge", "watch", "--dir", directory / "tidegauge-data", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[0]
    finally:
        process.terminate()
        process.wait(30)


NEUTRAL = """
document.addEventListener("DOMContentLoaded", () => {
  const original = take;
  window.take = (change) => {
    if (change.name) change.name = "/srv/try/tidegauge-data";
    if (change.zookeeper) change.zookeeper.address = "127.0.0.1:12181";
    for (const broker of Object.values(change.brokers || {})) {
      broker.address = `127.0.0.1:${19092 + broker.id}`;
      if (broker.pid) broker.pid = 8400 + broker.id;
    }
    original(change);
  };
});
"""


def screenshot(directory: Path, page: Page, address: str) -> None:
    """Photograph the page with a broker down and a follower held, so that a high watermark lags."""
    run(directory, "start", "2")
    for topic, assignment in (("invoices", "0:1:2,1:2:0"), ("payments", "1:0")):
        run(directory, "create-topic", topic, "--replica-assignment", assignment)
        for partition in range(assignment.count(",") + 1):
            run(directory, "produce", topic, "--count", "600", "--partition", str(partition))
    run(directory, "wait", "--in-sync")
    page.call("Page.addScriptToEvaluateOnNewDocument", source=NEUTRAL)
    page.open(address)
    row = "[...document.querySelectorAll('.group')].find(one => one.textContent.startsWith('%s'))?.textContent || ''"
    page.until(f"({row % 'payments-0'}).includes('LEO 600')")
    run(directory, "kill", "2")
    run(directory, "wait", "--leader", "invoices-1=1")
    page.until("document.body.textContent.includes('no session')")
    run(directory, "hold-fetch", "invoices-0", "--broker", "1")
    run(directory, "produce", "invoices", "--count", "250", "--acks", "1", "--partition", "0")
    page.until(f"({row % 'invoices-0'}).includes('LEO 850')")
    page.look(1280, 1060, dark=False)
    page.screenshot(IMAGES / "watch.png")


@contextmanager
def cluster(directory: Path) -> Iterator[Path]:
    """Return a directory with a cluster of three brokers that runs."""
    directory.mkdir()
    brokers = LocalCluster.create(directory / "tidegauge-data", 3, settings={"replica.lag.time.max.ms": "60000"})
    try:
        brokers.up()
        yield directory
    finally:
        brokers.down()


def main() -> None:
    """Make all of them."""
    with tempfile.TemporaryDirectory(prefix="tidegauge-pictures-") as name:
        with cluster(Path(name) / "drawn") as directory:
            (IMAGES / "failover.svg").write_text(failover(directory), encoding="utf-8")
        with cluster(Path(name) / "typed") as directory:
            (IMAGES / "terminal.svg").write_text(terminal(directory), encoding="utf-8")
            with watching(directory) as address, chromium(directory / "chromium") as page:
                screenshot(directory, page, address)


if __name__ == "__main__":
    main()
