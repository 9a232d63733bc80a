"""Odd requests of every API, many at a time, to brokers that are killed and loaded again; a watchdog looks.

    python bench/fuzz_requests.py [--mode kraft|zookeeper] [--requests N] [--seed N] [--workers N]

Zeros, negative and largest values of every field, things named twice, members and producers that responses have named
(``tests/odd_requests.py``). After each quarter of the requests a broker is killed and started again, so that another
one, and then itself, loads the internal topics. It ends with 1 if a request got no response, a process
ended by itself, or a log has a traceback, and prints each API's requests and the longest turns of the event loops.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from loop_turns import HERE, rows
from tests.odd_rounds import OddRounds

from tidegauge.kafka.apis import BROKER_PROTOCOL
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.wanted import WantedQuorum

LIMIT_SECONDS = 120.0
QUARTERS = 4
PROTOCOLS = {"kraft": KRAFT_BROKER_PROTOCOL, "zookeeper": BROKER_PROTOCOL}
SETTINGS = {"offsets.topic.replication.factor": "3", "transaction.state.log.replication.factor": "3"}
SHOWN = 10


class Fuzz:
    """Workers that send odd requests to one cluster.

    Args:
        cluster: that is up.
        mode: its mode.
        seed: decides all requests; a worker's are made from it and the worker's number.

    Attributes:
        sent: how many requests of each API had a response, or may have none.
        problems: what went wrong.
    """

    def __init__(self, cluster: LocalCluster, mode: str, seed: int) -> None:
        self._cluster, self._mode, self._seed = cluster, mode, seed
        self.sent: Counter[str] = Counter()
        self.problems: list[str] = []

    def run_quarter(self, number: int, requests: int, workers: int) -> None:
        """Send requests by several workers at a time. Topics that earlier requests have deleted are made again."""
        rounds = OddRounds.on(self._cluster.kafka_bootstrap_servers, random.Random(), PROTOCOLS[self._mode])
        topics = rounds.topics
        rounds.close()
        threads = [
            threading.Thread(target=self._work, args=(f"{self._seed}.{number}.{worker}", requests // workers, topics))
            for worker in range(workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, seed: str, requests: int, topics: Mapping[str, bytes]) -> None:
        rng = random.Random(seed)
        servers, label = self._cluster.kafka_bootstrap_servers, f"odd-{rng.randrange(5)}"
        try:
            rounds = OddRounds.on(servers, rng, PROTOCOLS[self._mode], label=label, topics=topics)
            for _ in range(requests):
                self.sent[rounds.ask_one()] += 1
            rounds.close()
        except (AssertionError, OSError) as problem:
            self.problems.append(f"worker {seed}: {type(problem).__name__} {problem}")

    def kill_and_start(self, broker: int) -> None:
        """Kill a broker and start it: its partitions of the internal topics are loaded elsewhere, then here."""
        self._cluster.kill(broker, expire=True)
        self._cluster.start(broker)
        self._cluster.wait_ready(LIMIT_SECONDS)

    def look_at_processes(self) -> None:
        """Note processes that have ended, and tracebacks in logs."""
        status = self._cluster.status()
        nodes = [*status["brokers"], *(status.get("controllers") or ())]
        self.problems += [f"node {one['id']} is {one['state']}: {one['end']}" for one in nodes if one["state"] != "up"]
        for log in sorted(self._cluster.logs.iterdir()):
            if "Traceback" in (text := log.read_text(errors="replace")):
                self.problems.append(f"{log.name}: {text[text.index('Traceback') :][:2000]}")


def main() -> int:
    """Run the requests, print the tables, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=sorted(PROTOCOLS), default="kraft", help="the cluster's (kraft)")
    parser.add_argument("--requests", type=int, default=20_000, metavar="N", help="in all (20,000)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="decides the requests (1)")
    parser.add_argument("--workers", type=int, default=16, metavar="N", help="connections at a time (16)")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as at:
        turns = Path(at) / "turns"
        turns.mkdir()
        os.environ |= {"TURNS_DIRECTORY": str(turns), "PYTHONPATH": str(HERE / "turn_meter")}
        quorum = {"mode": "kraft", "quorum": WantedQuorum(controllers=3)} if wanted.mode == "kraft" else {}
        cluster = LocalCluster.create(Path(at) / "cluster", 3, settings=SETTINGS, **quorum)  # type: ignore[arg-type]
        fuzz = Fuzz(cluster, wanted.mode, wanted.seed)
        began = time.monotonic()
        try:
            cluster.up(LIMIT_SECONDS)
            for number in range(QUARTERS):
                (turns / "phase").write_text(f"quarter {number + 1}")
                fuzz.run_quarter(number, wanted.requests // QUARTERS, wanted.workers)
                fuzz.look_at_processes()
                (turns / "phase").write_text("restart")
                fuzz.kill_and_start(number % 3)
        finally:
            cluster.down(grace_seconds=30)
        found = sorted(rows(turns, {}), key=lambda row: -row[2])[:SHOWN]
    print(f"{fuzz.sent.total()} requests in {time.monotonic() - began:.0f} s, mode {wanted.mode}, seed {wanted.seed}")
    print(", ".join(f"{api} {count}" for api, count in sorted(fuzz.sent.items())))
    print("| workload | longest turn or collection, ms of CPU | where |\n|---|---|---|")
    print("\n".join(f"| {what} | {ms} | {where} |" for what, _, ms, where in found))
    print(
        "\n".join(fuzz.problems) or "No process ended, each request had a response or waited for others, no traceback."
    )
    return bool(fuzz.problems)


if __name__ == "__main__":
    sys.exit(main())
