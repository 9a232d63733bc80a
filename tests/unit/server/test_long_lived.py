"""Long-lived objects are kept out of full garbage collections; each test runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from tidegauge_broker.server.long_lived import SURVIVORS_PER_FREEZE, freeze_what_lives_long
freeze_what_lives_long()
freeze_what_lives_long()
at_start = gc.get_freeze_count()
"""


def run(program: str) -> list[str]:
    """Run statements behind ``PROGRAM`` in a new process; return the words that they print."""
    done = subprocess.run([sys.executable, "-c", PROGRAM + program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_what_outlives_a_full_collection_is_frozen_once_it_is_much() -> None:
    """A full collection looks at all objects that are not frozen."""
    program = """
kept = [[] for _ in range(SURVIVORS_PER_FREEZE // 2)]
gc.collect()
print(gc.get_freeze_count() == at_start)
kept += [[] for _ in range(SURVIVORS_PER_FREEZE)]
gc.collect(1)
print(gc.get_freeze_count() == at_start)
gc.collect()
print(gc.get_freeze_count() - at_start >= 1.5 * SURVIVORS_PER_FREEZE, len(gc.get_objects()) < SURVIVORS_PER_FREEZE)
"""
    assert run(program) == ["True"] * 4


def test_garbage_is_collected_before_a_freeze_and_frozen_objects_go_with_their_last_reference() -> None:
    """A frozen cycle of references would stay for good."""
    program = """
class Node:
    count = 0
    def __init__(self):
        Node.count += 1
        self.me = self
    def __del__(self):
        Node.count -= 1

gc.disable()
kept = [[] for _ in range(2 * SURVIVORS_PER_FREEZE)]
cycle, single = Node(), Node()
single.me = None
del cycle
gc.collect()
print(Node.count, gc.get_freeze_count() > at_start)
del single
print(Node.count)
"""
    assert run(program) == ["1", "True", "0"]
