"""The mode of the clusters of tests that name no ZooKeeper and no quorum."""

from __future__ import annotations

import os

from tidegauge_client.cluster_file import KRAFT_MODE, MODES, ZOOKEEPER_MODE

MODE = os.environ.get("TIDEGAUGE_TEST_MODE", ZOOKEEPER_MODE)
"""With TIDEGAUGE_TEST_MODE=kraft files of tests that know no mode run in KRaft mode (``test_both_modes``)."""
IS_KRAFT = MODE == KRAFT_MODE
SESSION_TIMEOUT = "broker.session.timeout.ms" if IS_KRAFT else "zookeeper.session.timeout.ms"
"""The setting for how long a broker that is silent counts as alive."""
assert MODE in MODES, f"TIDEGAUGE_TEST_MODE is {MODE}"
