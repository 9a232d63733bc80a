"""Dynamic settings in ZooKeeper: ``/config/<type>/<name>`` is written, with a notification for all brokers.

As in Kafka any broker writes them, whether it is the controller or not, without a check of the controller epoch; the
write is one transaction with a check that ``/controller`` has not changed since it was read, if it exists. The znode is
written expecting the version that was read, where Kafka writes unconditionally: of two concurrent alterations neither
is lost. The notification under ``/config/changes`` is part of the transaction, where Kafka writes it afterwards: a
client whose connection closes in between, or a broker that dies, leaves no settings of which no broker hears. It only
names the entity, brokers read the rest.
Source: AdminZkClient.changeEntityConfig, KafkaZkClient.setOrCreateEntityConfigs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.znodes import (
    CONFIG,
    CONFIG_CHANGE_PREFIX,
    CONTROLLER,
    MalformedZnode,
    change_number,
    decode_config,
    encode_config,
    encode_config_change,
)
from tidegauge_controller.zookeeper.client import BadVersion, MultiFailed, NodeExists, NoNode, ZooKeeper, ZooKeeperError
from tidegauge_controller.zookeeper.decisions.steps import CheckVersion, CreateNode, Operation, SetNode


def _has_raced(operation: Operation, error: ZooKeeperError) -> bool:
    """Whether an operation failed because of a write between the read and it, so that it is worth repeating."""
    if isinstance(operation, CreateNode):
        return isinstance(error, NodeExists)  # with NoNode it is the parent that is missing
    return isinstance(error, BadVersion | NoNode)


class ConfigAdmin:
    """Reads and alters entities' settings; an entity is named by its path below ``/config``, such as ``topics/T``."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    async def read(self, entity: str) -> dict[str, str]:
        """Return the entity's own settings; none if the znode does not exist.

        Raises:
            MalformedZnode: the znode does not hold settings.
        """
        try:
            data, _ = await self._zookeeper.get(f"{CONFIG}/{entity}")
        except NoNode:
            return {}
        return decode_config(data)

    async def alter(self, entity: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> int:
        """Write what ``change`` makes of the settings, with the notification of all brokers; return its number.

        Raises:
            TidegaugeError: what ``change`` rejects; nothing was written.
            ZooKeeperError: ZooKeeper did not take it.
        """
        path = f"{CONFIG}/{entity}"
        while True:
            try:
                data, stat = await self._zookeeper.get(path)
                version = stat.version
            except NoNode:
                data, version = b"", None
            try:
                wanted = encode_config(change(decode_config(data)))
            except MalformedZnode as problem:
                raise TidegaugeError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"The znode {problem} does not hold settings; delete or repair it first",
                ) from problem
            operations: list[Operation] = []
            controller = await self._zookeeper.exists(CONTROLLER)
            if controller is not None:
                operations.append(CheckVersion(CONTROLLER, controller.version))
            operations.append(CreateNode(path, wanted) if version is None else SetNode(path, wanted, version))
            operations.append(CreateNode(CONFIG_CHANGE_PREFIX, encode_config_change(entity), sequence=True))
            try:
                results = await self._zookeeper.multi(operations)
            except MultiFailed as failure:
                if _has_raced(operations[failure.index], failure.error):
                    continue  # another writer was faster: read again
                raise failure.error from None
            return change_number(str(results[-1]))
