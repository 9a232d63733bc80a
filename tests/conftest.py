"""For all tests: property tests draw the same examples in every run, so that a change alone can make one fail.

To look for examples that are new: ``pytest --hypothesis-profile=random``. A finding becomes an
``@example``. All examples of each property (``examples.py``): ``--hypothesis-profile=thorough``, as ``make test-long``.

Under xdist the longest files come first (``durations.py``); ``--record-durations`` notes how long they take.
``--record-chaos`` runs the matrix of Kafka clients in pieces (``chaos_runs.py``).
"""

from __future__ import annotations

import signal
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, settings
from tests.chaos_runs import ChaosRecorder
from tests.clients.table import ClientRecorder
from tests.durations import FILE, ROOT, in_order, read_durations, write_durations
from tests.examples import THOROUGH
from tests.interpreted import reason_to_leave_out

from tidegauge.machine_code import IN_USE

# A busy machine is no defect: no test fails by the clock.
settings.register_profile("common", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("common"), derandomize=True, max_examples=40)
settings.register_profile(THOROUGH, settings.get_profile("common"), derandomize=True)
settings.register_profile("random", settings.get_profile("common"), derandomize=False)
settings.load_profile("steady")


def heed_interrupts() -> None:
    """Undo an ignored SIGINT, which a shell gives to its background jobs and each child process inherits.

    The tests that press Ctrl-C on a command of their own would wait for its end until they time out.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


heed_interrupts()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help="note in tests/durations.txt how long files take")
    parser.addoption("--record-clients", action="store_true", help="write the table in docs/clients.md (make clients)")
    parser.addoption("--record-chaos", type=int, metavar="TIMES", help="run each cell that often (make chaos)")
    parser.addoption("--chaos-seconds", type=float, default=float("inf"), help="begin no fault after that many")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())
    if config.getoption("--record-clients"):
        config.pluginmanager.register(ClientRecorder())
    if (times := config.getoption("--record-chaos")) is not None:
        config.pluginmanager.register(ChaosRecorder(times, config.getoption("--chaos-seconds")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each worker of xdist collects for itself; all must come to the same order."""
    if IN_USE.is_compiled:
        for item in items:
            if reason := reason_to_leave_out(item.nodeid):
                item.add_marker(pytest.mark.skip(reason=f"not compiled: {reason}"))
    if not hasattr(config, "workerinput") or not FILE.exists():
        return
    by_file: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_file[item.nodeid.partition("::")[0]].append(item)
    order = in_order(by_file, read_durations(FILE.read_text(encoding="utf-8")))
    items[:] = [item for path in order for item in by_file[path]]


class Recorder:
    """Sums what a file's tests and fixtures take."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        known = read_durations(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
        merged = {path: took for path, took in known.items() if (ROOT / path).exists()} | self._seconds
        FILE.write_text(write_durations(merged), encoding="utf-8")
