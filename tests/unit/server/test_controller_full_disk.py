"""A controller whose metadata log finds its disk full (StorageError ends a voter, and committed records are kept)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.server.one_controller import controller_at

from tidegauge_broker.log.lab_disk import DiskFault, DiskFaults, LabDisk


@pytest.mark.parametrize("operation", ["append", "sync"])
async def test_a_full_disk_ends_the_controller_which_acknowledges_nothing_more(operation: str, tmp_path: Path):
    """The next start on a disk with room has all that was acknowledged, and decides again."""
    faults = DiskFaults()
    async with controller_at(tmp_path, disk=LabDisk(faults)) as one:
        await one.register(0)
        await one.create("before")
        faults.add(DiskFault(operation, "__cluster_metadata-0", errno_name="ENOSPC"))
        created = one.create("lost")
        await one.driver.ended.wait()
        assert "No space left on device" in str(one.driver.failure)
        assert not created.done() or created.result().topics[0].error_code != 0
        assert set(one.controller.image.topic_ids) == {"before"}
        faults.remove(faults.in_force[0])
    async with controller_at(tmp_path) as one:
        assert "before" in one.controller.image.topic_ids
        await one.register(1)
        await one.create("after")
        assert "after" in one.controller.image.topic_ids
