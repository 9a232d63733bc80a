"""A broker that the lab did not start, on a directory of its cluster: its data is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge.errors import TidegaugeError
from tidegauge_client.cluster_file import BrokerEntry, ClusterFile
from tidegauge_lab.local import foreign, layout

FILE = ClusterFile(
    "127.0.0.1:2181",
    zookeeper_managed=True,
    profile="fast",
    brokers=[BrokerEntry(one, "127.0.0.1", 19092 + one, f"broker-{one}") for one in (0, 1)],
)


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Paths whose locks another process holds."""
    held: list[Path] = []

    def lockf(file: object, _: int) -> None:
        if Path(str(getattr(file, "name", ""))) in held:
            raise BlockingIOError

    monkeypatch.setattr("tidegauge_lab.local.foreign.fcntl.lockf", lockf)
    for one in (0, 1):
        data = layout.broker_data(tmp_path, one)
        data.mkdir(parents=True)
    return held


def test_a_free_directory_and_one_that_was_never_used_are_nobodys(tmp_path: Path, locked: list[Path]) -> None:
    (layout.broker_data(tmp_path, 0) / ".lock").touch()
    assert foreign.brokers_of_others(tmp_path, FILE) == []
    foreign.require_none(tmp_path, FILE)


def test_a_locked_directory_of_a_broker_that_is_down_is_anothers(tmp_path: Path, locked: list[Path]) -> None:
    """Also if one of several log directories is."""
    second = layout.broker_data(tmp_path, 1).parent / "data-2"
    second.mkdir()
    (second / ".lock").touch()
    locked.append(second / ".lock")
    assert foreign.brokers_of_others(tmp_path, FILE) == [1]
    with pytest.raises(TidegaugeError, match="directory of broker 1 runs a broker that `tidegauge up` did not start"):
        foreign.require_none(tmp_path, FILE)
