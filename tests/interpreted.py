"""The tests that do not run with machine code (``make test-compiled``), by file or by name, each with its reason."""

from __future__ import annotations

INTERPRETED: dict[str, str] = {}
"""By the beginning of the test's id."""


def reason_to_leave_out(test_id: str) -> str:
    """Why a test is left out with machine code; empty: it runs."""
    return next((reason for begins, reason in INTERPRETED.items() if test_id.startswith(begins)), "")
