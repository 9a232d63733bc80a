"""Common parts of the reports of exhaustive searches."""

from __future__ import annotations

from tidegauge_proof.exhaustive.breadth_first import Exploration


def states_per_second(result: Exploration, seconds: float) -> int:
    """Return how many states a search has visited in a second, rounded."""
    return round(result.states / max(seconds, 1e-6))


def figures(result: Exploration, seconds: float) -> dict[str, object]:
    """Return the figures of a search for its JSON, in printed order."""
    return {
        "states": result.states,
        "transitions": result.transitions,
        "depth": result.depth,
        "complete": result.complete,
        "digest": result.digest,
        "seconds": round(seconds, 3),
        "states_per_second": states_per_second(result, seconds),
    }
