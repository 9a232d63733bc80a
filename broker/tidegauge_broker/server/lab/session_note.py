"""Notes the broker's ZooKeeper session in a file, so that the lab can end it when the broker is dead or paused.

Who has a session's id and password may end it, so the file is its owner's alone.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from tidegauge.files import replace_text
from tidegauge_controller.zookeeper import SessionState, ZooKeeper

LOG = logging.getLogger(__name__)
OWNER_ALONE = 0o600


def keep_noted(zookeeper: ZooKeeper, path: Path) -> None:
    """Note the session now and whenever there is another one; a disk that refuses costs a line in the log.

    Args:
        zookeeper: the connected client.
        path: the file.
    """

    def note(state: SessionState) -> None:
        session_id, password = zookeeper.credentials
        if state is not SessionState.CONNECTED or not session_id:
            return
        text = json.dumps({"session": f"{session_id & 0xFFFF_FFFF_FFFF_FFFF:x}", "password": password.hex()})
        try:
            replace_text(path, text, OWNER_ALONE)
        except OSError as problem:
            LOG.warning("The ZooKeeper session can't be noted in %s: %s", path, problem.strerror)

    zookeeper.on_session(note)
    note(zookeeper.state)
