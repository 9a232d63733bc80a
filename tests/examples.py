"""How many examples a property test draws: some in each run of the suite, all in ``make test-long``.

The profile ``thorough`` (``conftest.py``) draws as many as a test asks for; every other one draws a share of them.
"""

from __future__ import annotations

from hypothesis import settings

THOROUGH = "thorough"
SHARE = 3
"""One of so many examples is drawn in each run."""


def examples(count: int) -> int:
    """Return the ``max_examples`` of a property whose whole number of examples is ``count``."""
    return count if settings.get_current_profile_name() == THOROUGH else max(1, count // SHARE)
