"""An internal topic that is deleted and created again is coordinated as a new one.

Its leader epochs begin at 0 once more, below those in which the same process has coordinated it before.
"""

from __future__ import annotations

import pytest
from tests.integration.conftest import MakeCluster
from tests.integration.test_damaged_coordinator_log import (
    INTERNAL,
    LIMIT_SECONDS,
    SETTINGS,
    commit,
    coordinated,
    create,
    fetched,
    init,
)
from tests.waiting import until, until_async

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_client import Admin
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.switches import Switches

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def works(cluster: LocalCluster, offset: int) -> None:
    until(lambda: commit(cluster, offset) is ErrorCode.NONE, LIMIT_SECONDS, what="a commit")
    until(lambda: init(cluster)[0] is ErrorCode.NONE, LIMIT_SECONDS, what="a producer id")


async def test_internal_topics_that_were_created_again_are_coordinated(make_cluster: MakeCluster) -> None:
    """The session of the broker expires in between, which raises the leader epochs of a process that lives on."""
    cluster = make_cluster(brokers=1, settings=SETTINGS)
    await create(cluster)
    coordinated(cluster)
    works(cluster, 5)
    async with Switches.of_cluster(cluster.file) as lab, Admin(cluster.bootstrap_servers) as admin:
        await lab.expire_session(0)

        async def has_later_epochs() -> bool:
            seen = await lab.observe(0, INTERNAL)
            return all(seen[TopicPartition(topic, 0)].leader_epoch > 0 for topic in INTERNAL)

        async def is_gone() -> bool:
            return not set(INTERNAL) & set((await admin.metadata()).topics)

        await until_async(has_later_epochs, limit=LIMIT_SECONDS, what="later leader epochs")
        works(cluster, 6)
        for topic in INTERNAL:
            await admin.delete_topic(topic)
        await until_async(is_gone, limit=LIMIT_SECONDS, what="the topics are deleted")
        coordinated(cluster)
        until(lambda: fetched(cluster) == (ErrorCode.NONE, [-1]), LIMIT_SECONDS, what="the new topic is coordinated")
        works(cluster, 7)
        assert fetched(cluster) == (ErrorCode.NONE, [7])
        seen = await lab.observe(0, INTERNAL)
        assert [seen[TopicPartition(topic, 0)].leader_epoch for topic in INTERNAL] == [0, 0]
