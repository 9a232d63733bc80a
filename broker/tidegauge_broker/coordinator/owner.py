"""Names the group or transactional id that a decision of a coordinator is about."""

from __future__ import annotations

from typing import NamedTuple


class Owner(NamedTuple):
    """The group or transactional id that timers, appends and requests belong to.

    Attributes:
        partition: of the internal topic.
        key: the group id or the transactional id.
    """

    partition: int
    key: str
