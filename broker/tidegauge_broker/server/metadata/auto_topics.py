"""Creates a topic because a client asked for its metadata (``auto.create.topics.enable``).

The client gets UNKNOWN_TOPIC_OR_PARTITION nevertheless and asks again; the controller creates the topic with
num.partitions and default.replication.factor. One attempt at a time for a name. Source: AutoTopicCreationManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import grpc.aio

from tidegauge.control import Endpoint
from tidegauge.v1 import topics_pb2
from tidegauge_broker.server.replication.peers import Peers

LOG = logging.getLogger("tidegauge.auto-topics")


class AutoTopics:
    """Asks the controller for topics.

    Args:
        controller: where the controller is reached, or None.
        peers: channels.
        timeout_ms: for one attempt.
    """

    def __init__(self, controller: Callable[[], Endpoint | None], peers: Peers, timeout_ms: int) -> None:
        self._controller = controller
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._in_progress: dict[str, asyncio.Task[None]] = {}

    def create(self, topic: str) -> None:
        """Begin to create a topic, unless an attempt is in progress."""
        if topic not in self._in_progress:
            self._in_progress[topic] = asyncio.get_running_loop().create_task(self._create(topic))

    async def _create(self, topic: str) -> None:
        try:
            controller = self._controller()
            if controller is None:
                return
            request = topics_pb2.CreateTopicsRequest(
                timeout_ms=self._timeout_ms, topics=[topics_pb2.NewTopic(name=topic)]
            )
            response = await self._peers.admin(controller.address).CreateTopics(
                request, timeout=self._timeout_ms / 1000
            )
            if response.topics[0].status.error:
                LOG.info("Topic %s was not created: %s", topic, response.topics[0].status.message)
        except grpc.aio.AioRpcError as problem:
            LOG.info("Topic %s was not created: %s", topic, problem.details())
        finally:
            self._in_progress.pop(topic, None)

    async def close(self) -> None:
        """Cancel the attempts in progress."""
        tasks = list(self._in_progress.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
