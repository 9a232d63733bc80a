"""A wait of the demo ends when nothing moves any more, and not because the machine is busy."""

from __future__ import annotations

from pathlib import Path

from tidegauge_lab.demo.patience import Patience, Usage, share, usage_of_session

SECOND_NS = 1_000_000_000


class Machine:
    """A clock, and what one thread has had of its processor."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran = self.waited = 0

    def passes(self, seconds: float, *, ran: float = 0.0, waited: float = 0.0) -> None:
        self.now += seconds
        self.ran += int(ran * SECOND_NS)
        self.waited += int(waited * SECOND_NS)

    def usage(self) -> Usage:
        return {7: (self.ran, self.waited)}

    def patience(self, limit_seconds: float) -> Patience:
        return Patience(limit_seconds, self.usage, lambda: self.now)


def looks_until_over(machine: Machine, patience: Patience, **each_second: float) -> int:
    for looks in range(10_000):
        if patience.is_over("the same"):
            return looks
        machine.passes(1, **each_second)
    raise AssertionError("never over")


def test_what_hangs_is_given_up_after_the_limit() -> None:
    machine = Machine()
    assert looks_until_over(machine, machine.patience(180)) == 180


def test_what_works_without_progress_is_given_up_after_the_limit_too() -> None:
    """Spark asks the brokers for new offsets for ever; that is no progress."""
    machine = Machine()
    assert looks_until_over(machine, machine.patience(180), ran=1) == 180


def test_on_a_busy_machine_the_limit_lasts_as_much_longer_as_everything_does() -> None:
    machine = Machine()
    assert looks_until_over(machine, machine.patience(180), ran=0.25, waited=0.75) == 720


def test_progress_starts_the_limit_again() -> None:
    machine = Machine()
    patience = machine.patience(180)
    for batch in range(100):
        assert not patience.is_over(batch)
        machine.passes(170)
    assert not patience.is_over(99)
    machine.passes(20)
    assert patience.is_over(99)


def test_the_share_counts_threads_that_came_and_not_those_that_went() -> None:
    before = {1: (SECOND_NS, 0), 2: (5 * SECOND_NS, 5 * SECOND_NS)}
    assert share(before, {1: (2 * SECOND_NS, SECOND_NS), 3: (SECOND_NS, SECOND_NS)}) == 0.5
    assert share(before, {1: (SECOND_NS + 10, 5_000_000)}) == 1.0, "too little to tell"
    assert share({}, {}) == 1.0


def test_the_threads_of_a_session_are_read_and_others_are_not(tmp_path: Path) -> None:
    for pid, name, session in ((10, "java", 10), (11, "a) R 1 10 (x", 10), (12, "other", 12)):
        (task := tmp_path / str(pid) / "task" / str(pid + 100)).mkdir(parents=True)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S 1 {pid} {session} 0 -1")
        (task / "schedstat").write_text(f"{pid} 5 9\n")
    (tmp_path / "11" / "task" / "200").mkdir()  # has ended meanwhile
    assert usage_of_session(10, tmp_path) == {110: (10, 5), 111: (11, 5)}
    assert usage_of_session(10, tmp_path / "none") == {}
