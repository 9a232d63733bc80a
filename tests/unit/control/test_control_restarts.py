"""Actions that stop or start brokers run one after the other (steering.py rule 3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidegauge_client.cluster_file import BrokerEntry, ClusterFile, load_cluster_file
from tidegauge_lab.control import steering
from tidegauge_lab.control.control_request import ControlRequest
from tidegauge_lab.local.cluster import LocalCluster


def test_requests_that_restart_brokers_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that change addresses keep both; none is at work while a snapshot has stopped the brokers."""
    brokers = [BrokerEntry(one, "127.0.0.1", 10 + one, f"broker-{one}") for one in range(2)]
    ClusterFile("127.0.0.1:2", True, "fast", brokers).save(tmp_path)
    at_work: list[str] = []
    most_at_work = 0

    async def run(act: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal most_at_work
        at_work.append(str(act))
        most_at_work = max(most_at_work, len(at_work))
        for _ in range(10):
            await asyncio.sleep(0)
        at_work.pop()
        return act(*arguments)

    def advertise(local: LocalCluster, addresses: Mapping[str, str]) -> None:
        entries = [replace(one, advertised=addresses.get(str(one.id), one.advertised)) for one in local.file.brokers]
        replace(local.file, brokers=entries).save(local.directory)

    monkeypatch.setattr(steering.asyncio, "to_thread", run)
    monkeypatch.setattr(steering, "advertise", advertise)
    monkeypatch.setattr(LocalCluster, "snapshot", lambda *_: None)
    control = steering.Control(tmp_path)

    async def ask_all() -> None:
        await asyncio.gather(
            control.advertise(ControlRequest({}, {}, {"0": "h:1"})),
            control.snapshot(ControlRequest({"name": "one"}, {}, {})),
            control.advertise(ControlRequest({}, {}, {"1": "h:2"})),
        )

    asyncio.run(ask_all())
    assert most_at_work == 1
    assert [one.advertised for one in load_cluster_file(tmp_path).brokers] == ["h:1", "h:2"]
