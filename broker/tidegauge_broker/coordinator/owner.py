"""Names the group, transactional id or share partition that a decision of a coordinator is about."""

from __future__ import annotations

from typing import NamedTuple


class Owner(NamedTuple):
    """The group, transactional id or share partition that timers, appends and requests belong to.

    Attributes:
        partition: of the internal topic.
        key: the group id, the transactional id, or the name of the share partition.
    """

    partition: int
    key: str
