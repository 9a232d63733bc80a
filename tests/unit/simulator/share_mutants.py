"""Rules of share groups, each taken away: random histories and the search of all schedules must both find it."""

from __future__ import annotations

import pytest

from tidegauge_broker.coordinator.share_state import deciding
from tidegauge_broker.share.states import Delivery

Patch = pytest.MonkeyPatch


def former_leaders_may_write(patch: Patch) -> None:
    patch.setattr(deciding, "_is_older", lambda *_: False)


def deliveries_are_not_counted(patch: Patch) -> None:
    acquire = Delivery.acquire

    def uncounted(self: Delivery, member_id: str) -> None:
        acquire(self, member_id)
        self.delivery_count = 1

    patch.setattr(Delivery, "acquire", uncounted)


def nothing_is_archived_at_the_limit(patch: Patch) -> None:
    give_back, roll_back = Delivery.give_back, Delivery.roll_back
    patch.setattr(Delivery, "give_back", lambda self, state, _: give_back(self, state, 1000))
    patch.setattr(Delivery, "roll_back", lambda self, _: roll_back(self, 1000))
