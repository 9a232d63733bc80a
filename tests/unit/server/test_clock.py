"""The clocks of a broker process: its own never goes back, the machine's wall clock is read each time."""

from tidegauge_broker.server.clock import Clock

HOUR_MS = 3_600_000


class Machine:
    """A machine whose clocks a test sets, in seconds."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000.0
        self.steady = 50.0

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.steady)


def test_both_clocks_begin_at_the_machines_time() -> None:
    machine = Machine()
    clock = machine.clock()
    assert clock() == clock.wall_ms() == clock.machine_ms() == 1_700_000_000_000
    assert clock.machine_us() == 1_700_000_000_000_000
    assert clock.wall.ahead_ms == 0


def test_the_brokers_own_clock_does_not_see_that_the_wall_clock_is_set() -> None:
    """Time.SYSTEM.milliseconds() is read each time for records; timers run by the monotonic clock."""
    machine = Machine()
    clock = machine.clock()
    machine.steady += 1
    machine.wall -= 3_599
    now_ms = clock()
    assert now_ms == 1_700_000_001_000
    assert clock.wall.at(now_ms) == clock.wall_ms() == 1_700_000_000_000 - HOUR_MS + 1_000


def test_after_the_machine_slept_records_get_the_time_of_now() -> None:
    """A sleep stops the monotonic clock (CLOCK_MONOTONIC) and not the wall clock."""
    machine = Machine()
    clock = machine.clock()
    machine.wall += 8 * 3_600
    now_ms = clock()
    assert now_ms == 1_700_000_000_000
    assert clock.wall.at(now_ms) == clock.machine_ms() == now_ms + 8 * HOUR_MS
    assert clock.machine_us() == (now_ms + 8 * HOUR_MS) * 1_000


def test_a_fault_of_the_clock_skews_the_wall_clock_alone() -> None:
    machine = Machine()
    clock = machine.clock()
    clock.shown_ms = lambda machine_ms: machine_ms + HOUR_MS
    now_ms = clock()
    assert clock.wall.at(now_ms) == clock.wall_ms() == now_ms + HOUR_MS
    assert now_ms == clock.machine_ms() == clock.machine_us() // 1_000
