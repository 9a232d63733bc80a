"""For all tests: property tests draw the same examples in every run, so that a change alone can make one fail.

To look for examples that nobody has seen yet: ``pytest --hypothesis-profile=random``. What it finds becomes an
``@example``.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("steady", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile("steady")
