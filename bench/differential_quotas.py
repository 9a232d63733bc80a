"""Random quotas and their use, judged by Tidegauge's managers and by Apache Kafka 3.9.1's, at the same times.

Each case is a window, and steps: a limit is set or removed (of a user, a client id, a pair, a default), something is
used or taken back, a request mutates topics, time passes. Results of a step must be the same to the millisecond: the
throttle time, what may be used in the window, which mutations are refused. So the quota that holds for each (user,
client id) is compared, too: limits differ widely. Kafka's classes run without a broker (QuotaSide.java), from Maven
Central; without Maven it says so.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fetched import Unavailable
from jars import KAFKA, kafka_jars

from tidegauge.errors import TidegaugeError
from tidegauge.java import java_program
from tidegauge_broker.quotas.client_quota import Mutations, QuotaManagers, RateQuota
from tidegauge_broker.quotas.limits import DEFAULT, Name, QuotaEntity
from tidegauge_broker.quotas.stats import Window

SIDE = Path(__file__).parent / "QuotaSide.java"
BEGIN_MS = 1_700_000_000_000
ABSENT, DEFAULT_NAME = "-", "<default>"
USERS = ("alice", "bob", "ANONYMOUS", "CN=x y*")
CLIENT_IDS = ("app", "", "a b", "other")
LIMITS = (0, 1, 7, 50, 1_000, 123_457, 1e9)
KINDS = ("produce", "request", "mutation")
Line = tuple[str, ...]


def cases(count: int, steps: int, seed: int) -> Iterator[list[Line]]:
    """Yield random cases, each the lines that ask for it."""
    rng = random.Random(seed)
    for _ in range(count):
        yield list(_case(rng, steps))


def _case(rng: random.Random, steps: int) -> Iterator[Line]:
    yield ("reset", str(rng.choice([1, 2, 5, 11, 11])), str(rng.choice([1, 1, 3])))
    now_ms = BEGIN_MS
    users, clients = rng.sample(USERS, 2), rng.sample(CLIENT_IDS, 2)
    for step in range(steps):
        if step < 4 or rng.random() < 0.15:
            yield _set(rng, users, clients)
            continue
        now_ms += rng.choice([0, 0, 1, 37, 250, 999, 1_000, 1_001, 4_321, 12_000]) if rng.random() < 0.9 else 70_000
        who = (rng.choice(users), rng.choice(clients))
        kind = rng.random()
        if kind < 0.55:
            used = "produce" if rng.random() < 0.7 else "request"
            value = rng.choice([0, 1, 100, 5_000, 100_000, rng.randint(0, 3_000), round(rng.random() * 50, 3)])
            yield ("use", used, str(now_ms), *who, str(value))
        elif kind < 0.65:
            yield ("back", str(now_ms), *who, str(rng.randint(0, 2_000)))
        elif kind < 0.75:
            yield ("most", *who)
        else:
            counts = [str(rng.choice([1, 3, 20, 500])) for _ in range(rng.randint(1, 4))]
            yield ("mutate", str(now_ms), *who, str(rng.randint(0, 1)), *counts)


def _set(rng: random.Random, users: list[str], clients: list[str]) -> Line:
    user = rng.choice([ABSENT, DEFAULT_NAME, *users])
    named = [DEFAULT_NAME, *(client for client in clients if client)]
    client = rng.choice(named if user == ABSENT else [ABSENT, *named])
    limit = ABSENT if rng.random() < 0.2 else str(float(rng.choice(LIMITS)))
    return ("set", rng.choice(KINDS), user, client, limit)


def ours(lines: list[Line]) -> list[str]:
    """Return what Tidegauge says."""
    found: list[str] = []
    managers = QuotaManagers.of(Window(), Window())
    for line in lines:
        match line:
            case ("reset", samples, seconds):
                window = Window(int(samples), int(seconds) * 1000)
                managers = QuotaManagers.of(window, window)
            case ("set", kind, user, client, limit):
                value = None if limit == ABSENT else float(limit)
                getattr(managers, kind).set(QuotaEntity(_name(user), _name(client)), value)
            case ("use", kind, now_ms, user, client, value_text):
                quota: RateQuota = getattr(managers, kind)
                value = float(value_text)
                found.append(str(quota.record(user, client, value, int(now_ms)) if quota.limits.were_set else 0))
            case ("back", now_ms, user, client, value_text):
                managers.produce.take_back(user, client, float(value_text), int(now_ms))
            case ("most", user, client):
                found.append(str(managers.produce.most_in_window(user, client)))
            case ("mutate", now_ms, user, client, is_strict, *counts):
                found.append(
                    _mutated(Mutations(managers.mutation, user, client, is_strict=is_strict == "1"), now_ms, counts)
                )
    return found


def _mutated(mutations: Mutations, now_ms: str, counts: list[str]) -> str:
    refused = ""
    for count in counts:
        try:
            mutations.record(int(count), int(now_ms))
            refused += "0"
        except TidegaugeError:
            refused += "1"
    return f"{refused} {mutations.throttle_ms(int(now_ms))}"


def _name(text: str) -> Name:
    return None if text == ABSENT else DEFAULT if text == DEFAULT_NAME else text


def kafkas(every: list[list[Line]]) -> list[str]:
    """Return what Kafka's managers say.

    Raises:
        Unavailable: its jars can't be had.
    """
    command = [java_program(), "-cp", f"{kafka_jars()}/*", str(SIDE)]
    given = "".join("\t".join(line) + "\n" for case in every for line in case)
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"QuotaSide failed: {done.stderr[-2000:]}")
    return done.stdout.splitlines()


def is_same(left: str, right: str) -> bool:
    """Whether two sides say the same: texts, or numbers (Java writes them in its way; its largest is no limit)."""
    if left == right:
        return True
    try:
        one, other = float(left), float(right)
    except ValueError:
        return False
    return one == other or (math.isinf(one) and other == sys.float_info.max)


def main() -> int:
    """Compare; the exit status is 1 where a step differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    every = list(cases(options.cases, options.steps, options.seed))
    try:
        theirs = iter(kafkas(every))
    except Unavailable as problem:
        print(f"Not compared: {problem}")
        return 0
    compared = throttled = 0
    different: list[str] = []
    for case in every:
        found = iter(ours(case))
        for number, line in enumerate(case):
            if line[0] not in {"use", "most", "mutate"}:
                continue
            own, other = next(found), next(theirs)
            compared += 1
            throttled += other != "0" and line[0] == "use"
            if not is_same(own, other):
                before = "\n".join("\t".join(one) for one in case[: number + 1])
                different.append(f"{before}\n-> Tidegauge {own}, Kafka {other}\n")
    print(f"{compared} questions, {throttled} throttled by Kafka {KAFKA}, {len(different)} judged differently")
    print("\n".join(different[:3]), end="")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
