"""LogDirMoves: when a copy takes the replica's place (the rest is held by tests with real brokers)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.log.test_future_logs import AT, NOW_MS, Two

from tidegauge_broker.log.files import Disk
from tidegauge_broker.replica.roles import Role
from tidegauge_broker.server.replication.log_dir_moves import LogDirMoves


class Notes(Disk):
    """Notes the size of each file that was synced."""

    def __init__(self) -> None:
        self.synced: dict[str, int] = {}

    def sync(self, path: Any) -> None:
        super().sync(path)
        self.synced[path.name] = path.stat().st_size


@pytest.mark.parametrize("gap", [False, True])
def test_a_copy_replaces_the_replica_when_as_much_of_it_is_on_the_disk(tmp_path: Any, batch: Any, *, gap: bool) -> None:
    """A loss of power just after it takes nothing that was flushed before.

    Also where the log ends in a gap, which a truncation within a batch leaves: a copy ends below it.
    """
    two = Two(tmp_path)
    two.disks[two.paths[1]] = disk = Notes()
    two.restart()
    two.append(batch, 5)
    if gap:
        two.logs.logs[AT].truncate_to(9)
    two.logs.sync(AT)
    partition = SimpleNamespace(role=Role.LEADER, high_watermark=9)
    replicas: Any = SimpleNamespace(
        core=SimpleNamespace(partition=lambda _at: partition), logs=two.logs, report_failures=lambda: None
    )

    async def at_once(call: Any) -> None:
        call()

    async def move() -> None:
        moves = LogDirMoves(
            replicas, SimpleNamespace(bytes_per_second=lambda: 1 << 62, step_bytes=100), at_once, lambda: NOW_MS
        )  # type: ignore[arg-type]
        assert await moves.alter({AT: str(two.paths[1])}) == {AT: 0}
        assert moves._task is not None
        await moves._task

    asyncio.run(move())
    log = two.logs.logs[AT]
    assert log.directory == two.paths[1] / "orders-0"
    assert {segment.path.name: segment.size_bytes for segment in log.segments if segment.size_bytes}.items() <= (
        disk.synced.items()
    )
    two.logs.close({}, clean=False)
