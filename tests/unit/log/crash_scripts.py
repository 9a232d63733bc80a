"""Scripts for a world: any steps, and stories, which lead to what any steps seldom come to; both from a seed.

A story has its own steps in order, on one compacted log for the most part, and any others in between now and then. So
each of its parts can fail in any way, and what it leads to is only more frequent, not certain.
"""

from __future__ import annotations

from random import Random

from tests.unit.log.crash_world import STEPS, Process, Step

Script = tuple[Process, ...]

_FIRST: tuple[Step, ...] = (("topic", 0, 0), ("topic", 2, 0))
_CLEAN = ("churn", "compact all")
_AWAY = "a copy is away while the log is compacted"
_STORIES: dict[str, tuple[tuple[str, ...], ...]] = {
    "the log is truncated in what was compacted": (
        ("churn", "churn", "churn", "compact all", "truncate"),
        ("churn", "churn", "churn", *_CLEAN, *_CLEAN, *_CLEAN),
    ),
    "the log changes while it is compacted": (
        ("churn", "churn", "churn", "disturb", "churn", "churn", *_CLEAN, *_CLEAN, *_CLEAN),
    ),
    _AWAY: (
        ("churn", "churn", "churn", "move", "go on moving"),
        ("churn", "churn", *_CLEAN, *_CLEAN),
        ("finish moving", "churn"),
        _CLEAN,
    ),
    "the new segment takes the place of the old one": (
        ("churn", "abort", "sync", "compact once"),
        ("abort", "sync", "compact once"),
        ("abort", "sync", "compact once"),
    ),
    "the log moves while it is compacted": (
        ("churn", "churn", "churn", "compact", "move", "go on moving", "compact", "go on moving"),
        ("finish moving", "churn", *_CLEAN, *_CLEAN),
    ),
    "segments are emptied, and their recovery point is not written": (
        ("repeat", "repeat", "churn", "compact once"),
        ("repeat", "churn", *_CLEAN),
    ),
    "a segment begins behind a gap": (
        ("churn", "gap", "gap"),
        ("gap", "churn", *_CLEAN, "gap"),
    ),
}  # fmt: skip
"""The steps of the processes of each."""
_LATE = (20, 40, 60)
"""How many changes of a file the last step of a process makes at most before the process ends."""


def script_of(seed: int) -> Script:
    """Return a seed's script, of short processes that often end midway."""
    random = Random(seed)
    if random.random() < 0.4:
        return tuple(_any_process(random, at) for at in range(random.randint(1, 6)))
    story = _STORIES[random.choice(list(_STORIES))]
    one = random.randrange(0, 1000, 4) + random.choice([2, 3])  # a log of the topic of keys, if all are there
    processes = [_of_story(random, names, one, number) for number, names in enumerate(story)]
    if random.random() < 0.3:
        processes.append(_any_process(random, len(processes)))
    return tuple(processes)


def _any_process(random: Random, number: int) -> Process:
    names = random.choices(list(STEPS), list(STEPS.values()), k=random.randint(0, 30))
    return _ended(random, number, [(name, random.randrange(1000), random.randrange(1000)) for name in names])


def _of_story(random: Random, names: tuple[str, ...], one: int, number: int) -> Process:
    """Return a process of a story, with any steps in between."""
    steps: list[Step] = []
    for name in names:
        if random.random() < 0.1:
            steps.append((random.choice(list(STEPS)), random.randrange(1000), random.randrange(1000)))
        steps.append((name, one, random.randrange(1000)))
    process = _ended(random, number, steps)
    if names is _STORIES[_AWAY][1] and random.random() < 0.9:
        process = process._replace(failing=one % 2 == 0)  # where the log is not, as a rule
    chance = random.random()
    if chance < 0.35:
        return process._replace(last=random.randrange(random.choice(_LATE)), counts="late")
    if chance < 0.6:
        return process._replace(last=random.randrange(random.choice(_LATE)), counts="renames")
    if chance < 0.9:
        return process._replace(last=None)
    return process


def _ended(random: Random, number: int, steps: list[Step]) -> Process:
    return Process(
        (*_FIRST, *steps) if number == 0 else tuple(steps),
        random.choice(["clean", "kill", "kill", "power"]),
        random.choice([None, random.randrange(30), random.randrange(200), random.randrange(200)]),
        random.random() < 0.2,
        random.randrange(1000),
        failing=random.choice([0, 1]) if random.random() < 0.05 else None,
    )
