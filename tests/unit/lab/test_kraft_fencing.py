"""Which registration the lab has fenced: the last one in the broker's event log, whatever other events there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.local import layout
from tidegauge_lab.local.topology.kraft_fencing import broker_epoch, require_registered


def directory_of(tmp_path: Path, *lines: str) -> Path:
    """A cluster's directory with the event log of broker 0."""
    logs = tmp_path / layout.LOGS
    logs.mkdir()
    (logs / "broker-0.events.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def lifecycle(epoch: object) -> str:
    return json.dumps(
        {"source": "broker-0", "kind": "broker", "state": "x", "broker_epoch": epoch}, separators=(",", ":")
    )


def test_the_last_registration_counts(tmp_path: Path) -> None:
    """KIP-631: a heartbeat with another broker epoch is refused with STALE_BROKER_EPOCH."""
    directory = directory_of(tmp_path, lifecycle(-1), lifecycle(14), lifecycle(-1), lifecycle(90), '{"kind":"isr"}')
    assert broker_epoch(directory, 0) == 90


@pytest.mark.parametrize(
    "odd", ['{"kind":"broker"', '{"kind":"broker"}', '[1,"kind":"broker"]', lifecycle("9"), lifecycle(None)]
)
def test_lines_that_are_no_events_change_nothing(tmp_path: Path, odd: str) -> None:
    """A process may still write its last line, and a directory may be a stranger's."""
    assert broker_epoch(directory_of(tmp_path, lifecycle(7), odd), 0) == 7


@pytest.mark.parametrize("target", [0, 1, 3000, "zookeeper"])
def test_who_has_never_registered_is_refused(tmp_path: Path, target: int | str) -> None:
    directory = directory_of(tmp_path, lifecycle(-1))
    with pytest.raises(TidegaugeError, match="only a registered broker can be fenced") as refused:
        require_registered(directory, [target])
    assert refused.value.code is ErrorCode.INVALID_REQUEST
