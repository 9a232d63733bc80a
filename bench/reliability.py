"""Count how often a start fails, and how often a failover loses a record: ``make reliability`` (docs/reliability.md).

A round is one ``tidegauge up`` in a new directory, from the shell to the first record that a Kafka client has
acknowledged by all replicas, and one ``tidegauge down``. Every tenth round's cluster also lives through ten cycles: the
leader is killed with SIGKILL while an idempotent producer of librdkafka writes without a pause, another broker leads,
the dead one is started again, and all replicas are in sync; then each acknowledged record is read at its offset. All of
it is steered over HTTP. Each wait has a bound (``BOUND_SECONDS``), and one that runs out is a failure.

``--record FILE`` has a line for each start and cycle, with the machine's load; a run that is given the file of another
continues it. A failed cycle keeps its directory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "python"))

from reliability_client import PARTITION, Writer, write_first
from steering import Control

BOUND_SECONDS = 60.0
CYCLES_OF_A_ROUND = 10
TOPIC = "reliability"
COMMAND_SECONDS = 180.0
KINDS = ("start", "cycle")
FAILURES_IN_A_ROW = 5
"""After that many something is wrong with the machine or the installation, and the run ends."""


class Failed(Exception):
    """A start or a cycle that is not what it must be."""


class Records:
    """The counts, one JSON line each.

    Args:
        path: of the file; lines that it has count.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.lines: list[dict[str, Any]] = (
            [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
        )

    def count(self, kind: str) -> int:
        """Return how many of a kind there are."""
        return sum(line["kind"] == kind for line in self.lines)

    def add(self, kind: str, seconds: float, failure: str = "", **more: Any) -> None:
        """Write one down."""
        line = {
            "kind": kind,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "load": round(os.getloadavg()[0], 1),
            "seconds": round(seconds, 3),
            "failure": failure,
            **more,
        }
        self.lines.append(line)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if failure:
            print(f"{kind} {self.count(kind)} failed: {failure}", file=sys.stderr, flush=True)


def command(directory: Path, *words: str) -> str:
    """Run a verb of the command line; return its stdout.

    Raises:
        Failed: it did not end with 0, or not in time.
    """
    program = str(Path(sys.executable).parent / "tidegauge")
    line = [program, *words, "--dir", str(directory)]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"{words[0]} did not end within {COMMAND_SECONDS:g} s") from None
    if done.returncode:
        raise Failed(f"{words[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


@contextlib.contextmanager
def started(directory: Path, records: Records) -> Iterator[Control]:
    """Start a cluster, up to the first acknowledged record, and end it; a failed start is counted and raised."""
    began = time.monotonic()
    try:
        status = json.loads(command(directory, "up", "--detach", "--control", "127.0.0.1:0", "--output", "json"))
        up_seconds = time.monotonic() - began
        write_first(status["kafka_bootstrap_servers"], TOPIC, BOUND_SECONDS)
    except Exception as problem:
        records.add("start", time.monotonic() - began, f"{type(problem).__name__}: {problem} ({directory})")
        with contextlib.suppress(Failed):
            command(directory, "down")
        raise Failed(str(problem)) from problem
    records.add("start", up_seconds, first_record_seconds=round(time.monotonic() - began, 3))
    try:
        yield Control(status["control"])
    finally:
        command(directory, "down")
    shutil.rmtree(directory)


def cycle(control: Control, writer: Writer, records: Records) -> None:
    """Kill the leader and bring it back; count what the waits took and what became of the records."""
    began = time.monotonic()
    took: dict[str, float] = {}
    limit_ms = int(BOUND_SECONDS * 1000)
    try:
        writer.raise_if_ended()
        killed = control.kill(f"leader-of:{PARTITION}")
        leader = control.wait(limit_ms, leader={PARTITION: {"not": killed}})
        took["leader_ms"] = leader["took_ms"]
        since = time.monotonic()
        control.start(killed)
        took["start_ms"] = round((time.monotonic() - since) * 1000)
        took["in_sync_ms"] = control.wait(limit_ms, isr={PARTITION: [0, 1, 2]})["took_ms"]
        checked, lost, strange = writer.check()
    except Exception as problem:
        records.add("cycle", time.monotonic() - began, f"{type(problem).__name__}: {problem}", **took)
        raise Failed(str(problem)) from problem
    failure = f"{lost} acknowledged records are lost, {strange} others are there" if lost or strange else ""
    records.add("cycle", time.monotonic() - began, failure, records=checked, lost=lost, **took)
    if failure:
        raise Failed(failure)


def one_round(directory: Path, cycles: int, records: Records) -> None:
    """Start a cluster, with cycles or without, and end it.

    Raises:
        Failed: the directory is kept.
    """
    with started(directory, records) as control:
        if not cycles:
            return
        control.wait(int(BOUND_SECONDS * 1000), in_sync=[TOPIC])
        with Writer(control.bootstrap_servers, TOPIC, BOUND_SECONDS) as writer:
            for _ in range(cycles):
                cycle(control, writer, records)


def summary(lines: Sequence[dict[str, Any]]) -> str:
    """Return the counts as the table of docs/reliability.md."""
    if not lines:
        return "Nothing was counted."
    loads = sorted(line["load"] for line in lines)
    rows = [
        f"{lines[0]['at']} to {lines[-1]['at']}, {os.cpu_count()} cores, load average {loads[0]:g} to {loads[-1]:g} "
        f"(median {statistics.median(loads):g})",
        "",
        "| | times | failures | median | 99 % | longest |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    timed = [
        ("start", "seconds", "`tidegauge up -d --control`", 1),
        ("start", "first_record_seconds", "the same, until the first record is acknowledged", 1),
        ("cycle", "leader_ms", "leader killed to the next leader", 1000),
        ("cycle", "start_ms", "broker started again", 1000),
        ("cycle", "in_sync_ms", "all replicas in sync", 1000),
    ]
    for kind, name, about, divisor in timed:
        of_kind = [line for line in lines if line["kind"] == kind]
        failures = sum(bool(line["failure"]) for line in of_kind)
        values = sorted(line[name] / divisor for line in of_kind if name in line)
        if values:
            late = values[min(len(values) - 1, int(len(values) * 0.99))]
            seconds = " | ".join(f"{value:.2f} s" for value in (statistics.median(values), late, values[-1]))
            rows.append(f"| {about} | {len(of_kind):,} | {failures} | {seconds} |")
    written = sum(line.get("records", 0) for line in lines)
    lost = sum(line.get("lost", 0) for line in lines)
    rows += ["", f"Records acknowledged during the cycles, each read at its offset: {written:,}; lost: {lost}."]
    return "\n".join(rows)


def main() -> int:
    """Run rounds until both counts are reached or the time is over; return 1 if anything failed."""
    options = _options()
    records = Records(options.record)
    deadline = time.monotonic() + options.seconds
    if options.summary:
        print(summary(records.lines))
        return 0
    room = Path(tempfile.mkdtemp(prefix="reliability-", dir=options.directory))
    number = 0
    while any(records.count(kind) < options.times for kind in KINDS) and time.monotonic() < deadline:
        cycles = CYCLES_OF_A_ROUND if number % CYCLES_OF_A_ROUND == 0 else 0
        number += 1
        if len(records.lines) >= FAILURES_IN_A_ROW and all(
            one["failure"] for one in records.lines[-FAILURES_IN_A_ROW:]
        ):
            break
        with contextlib.suppress(Failed):  # counted, and its directory is kept
            one_round(room / f"round-{number}", min(cycles, options.times - records.count("cycle")), records)
    with contextlib.suppress(OSError):  # what failed is kept
        room.rmdir()
    print(summary(records.lines))
    return int(any(line["failure"] for line in records.lines))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1000, help="starts, and cycles; 1000")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no round after that many")
    parser.add_argument("--record", type=Path, default=Path("build/reliability.jsonl"), help="the file of lines")
    parser.add_argument("--directory", type=Path, default=None, help="where clusters' directories are made")
    parser.add_argument("--summary", action="store_true", help="only show what the file has")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
