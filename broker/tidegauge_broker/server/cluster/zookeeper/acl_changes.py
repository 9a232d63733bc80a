"""Follows the change nodes of access control lists, literal and extended.

Source: ``ZkNodeChangeNotificationListener``, ``AclAuthorizer.processAclChangeNotification``.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.cluster_metadata.access_lists import Pattern
from tidegauge.znodes.access_lists import CHANGES, EXTENDED_CHANGES, decode_change
from tidegauge_broker.server.cluster.zookeeper.acl_store import AclStore
from tidegauge_broker.server.cluster.zookeeper.config_changes import ConfigChanges
from tidegauge_controller.zookeeper.client import ZooKeeper


def acl_changes(zookeeper: ZooKeeper, acls: AclStore, now_ms: Callable[[], int]) -> list[ConfigChanges[Pattern]]:
    """Return what follows the lists of both kinds, not started yet."""
    return [
        ConfigChanges(zookeeper, acls.read, acls.read_all, now_ms, path, decode_change, _without_number)
        for path in (CHANGES, EXTENDED_CHANGES)
    ]


def _without_number(name: str) -> int:
    """Return 0: no caller waits for a list's change by its number."""
    del name
    return 0
