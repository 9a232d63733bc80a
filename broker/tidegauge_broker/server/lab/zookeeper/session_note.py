"""Notes the broker's ZooKeeper session in a file, so that the lab can end it when the broker is dead or paused.

A session's id and password suffice to end it, so the file is its owner's alone.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from tidegauge.files import replace_text
from tidegauge_broker.server.cluster.ports import Cluster, Session

LOG = logging.getLogger(__name__)
OWNER_ALONE = 0o600


def keep_noted(cluster: Cluster, path: Path) -> None:
    """Note the session now and whenever there is another one; a disk that refuses costs a line in the log.

    Args:
        cluster: that the broker is a member of.
        path: the file.
    """

    def note(session: Session) -> None:
        text = json.dumps(
            {"session": f"{session.session_id & 0xFFFF_FFFF_FFFF_FFFF:x}", "password": session.password.hex()}
        )
        try:
            replace_text(path, text, OWNER_ALONE)
        except OSError as problem:
            LOG.warning("The ZooKeeper session can't be noted in %s: %s", path, problem.strerror)

    cluster.on_session(note)
