"""When the cluster of the pytest plugin is restored: once for each test that uses it (rule 3 of its cluster.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.pytest_plugin.cluster import Cluster
from tidegauge_lab.pytest_plugin.plugin import CLUSTER, pytest_runtest_setup


class Restored(Cluster):
    """A cluster without processes; notes each restore."""

    def __init__(self) -> None:
        local: Any = SimpleNamespace(
            directory=Path("/cluster"), bootstrap_servers=["h:1"], file=SimpleNamespace(brokers=[])
        )
        super().__init__(local)
        self.restores = 0
        self.problem: TidegaugeError | None = None
        self._aio.restore = self.note_restore  # type: ignore[method-assign]

    async def note_restore(self) -> None:
        self.restores += 1
        if self.problem is not None:
            raise self.problem


@pytest.fixture
def restored() -> Iterator[Restored]:
    cluster = Restored()
    yield cluster
    cluster._loop.close()


def begin(cluster: Cluster, *fixtures: str) -> None:
    """Let a test begin that names these fixtures."""
    config = SimpleNamespace(stash=pytest.Stash())
    config.stash[CLUSTER] = cluster
    item: Any = SimpleNamespace(fixturenames=fixtures, config=config, stash=pytest.Stash())
    pytest_runtest_setup(item)


USES = {
    "a property": lambda cluster: cluster.bootstrap_servers,
    "the object for asyncio": lambda cluster: cluster.aio,
    "the processes": lambda cluster: cluster.local,
    "the directory": lambda cluster: cluster.directory,
    "the ids": lambda cluster: cluster.brokers,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_test_that_does_not_name_the_fixture_finds_the_cluster_whole_at_its_first_use(restored, use) -> None:
    """``request.getfixturevalue`` gives the session's fixture without a hook that could restore it."""
    begin(restored)
    assert restored.restores == 0, "a test that does not use the cluster pays for nothing"
    use(restored)
    use(restored)
    assert restored.restores == 1
    begin(restored)
    use(restored)
    assert restored.restores == 2, "for each test"


def test_a_test_that_names_the_fixture_finds_it_whole_before_any_use(restored: Restored) -> None:
    """It may know the addresses from a fixture of a wider scope, and never touch the cluster's object."""
    restored.topics_of_test.append("of the last test")
    begin(restored, "tidegauge_cluster")
    assert (restored.restores, restored.is_used, restored.topics_of_test) == (1, True, [])
    USES["a property"](restored)
    assert restored.restores == 1


def test_a_cluster_that_was_launched_in_this_test_is_whole(restored: Restored) -> None:
    USES["a property"](restored)
    assert restored.restores == 0


@pytest.mark.parametrize("named", [(), ("tidegauge_cluster",)])
def test_a_restore_that_fails_fails_its_test_and_is_tried_again_for_the_next(restored: Restored, named) -> None:
    for attempt in (1, 2):
        restored.problem = TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, "a sentence")
        with pytest.raises(TidegaugeError, match="a sentence"):
            begin(restored, *named)
            USES["a property"](restored)
        assert restored.is_used, "the report of a failed test looks at the cluster as it is"
        assert restored.restores == attempt
