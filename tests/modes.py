"""The mode of the clusters of tests that name no ZooKeeper and no quorum."""

from __future__ import annotations

import os

from tidegauge_client.cluster_file import KRAFT_MODE, MODES, ZOOKEEPER_MODE

MODE = os.environ.get("TIDEGAUGE_TEST_MODE", ZOOKEEPER_MODE)
"""With TIDEGAUGE_TEST_MODE=kraft files of tests that know no mode run in KRaft mode (``test_both_modes``)."""
IS_KRAFT = MODE == KRAFT_MODE
SESSION_TIMEOUT = "broker.session.timeout.ms" if IS_KRAFT else "zookeeper.session.timeout.ms"
"""The setting for how long a broker that is silent counts as alive."""
AUTHORIZER = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer" if IS_KRAFT else "kafka.security.authorizer.AclAuthorizer"
)
"""The class that a broker of the mode checks access control lists with."""
assert MODE in MODES, f"TIDEGAUGE_TEST_MODE is {MODE}"


def super_users(users: str) -> dict[str, str]:
    """Return the setting ``super.users`` of all nodes.

    The controllers' listener asks for no credentials, so that in KRaft mode ANONYMOUS is one of theirs.
    """
    found = {"super.users": users}
    if IS_KRAFT:
        found |= {f"{controller}:super.users": f"User:ANONYMOUS;{users}" for controller in (3000, 3001, 3002)}
    return found
