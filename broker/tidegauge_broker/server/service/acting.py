"""The client for which the current task acts: a wire sets it, and what is forwarded in the client's name reads it."""

from __future__ import annotations

from contextvars import ContextVar

from tidegauge.principal import ANONYMOUS, Principal

ACTS_FOR: ContextVar[Principal] = ContextVar("principal of the call", default=ANONYMOUS)
"""The principal of the call that the current task serves."""
ACTS_FROM: ContextVar[str] = ContextVar("address of the caller", default="")
"""The client's address in Java's form; empty: unknown."""
