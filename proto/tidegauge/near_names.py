"""The known name that a misspelt one may stand for: the one place that decides it, for every sentence that asks.

Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

LEAST_SIMILARITY = 0.6
"""Similarity, by ``difflib.SequenceMatcher.ratio``, below which a name is not worth suggesting."""

LEAST_LENGTH = 3
"""Length below which a word is a part of too many names."""


def near_names(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return the known names most similar to a word, nearest first, ignoring case.

    A name with or without its first part comes before similar ones: a topic has ``retention.ms`` for a broker's
    ``log.retention.ms``. If no name is similar, the names that contain the word: ``SASL`` may be
    ``SASL_AUTHENTICATION_FAILED``.

    Args:
        word: as the user wrote it.
        known: the names that there are.
        most: maximum number of names to return.
    """
    spelled: dict[str, str] = {}
    for name in known:
        spelled.setdefault(name.lower(), name)
    wanted = word.lower()
    parted = [name for name in spelled if wanted.endswith(f".{name}") or name.endswith(f".{wanted}")]
    near = parted + [name for name in _similar(wanted, spelled, most) if name not in parted]
    if not near and len(wanted) >= LEAST_LENGTH:
        near = sorted((name for name in spelled if wanted in name), key=lambda name: (len(name), name))
    return [spelled[name] for name in near[:most]]


def _similar(word: str, known: Iterable[str], most: int) -> list[str]:
    return difflib.get_close_matches(word, known, n=most, cutoff=LEAST_SIMILARITY)


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", most: int = 1) -> str:
    """Return the end of a sentence about an unknown name: similar known names.

    Args:
        word: as the user wrote it.
        known: the names that there are.
        otherwise: the end of the sentence if no name is near: where to find them, for example.
        most: maximum number of names to suggest.
    """
    near = near_names(word, known, most)
    return f"; did you mean {' or '.join(near)}?" if near else otherwise


def each_did_you_mean(words: Collection[str], known: Collection[str]) -> str:
    """Return the end of a sentence about unknown names: similar ones."""
    if len(words) == 1:
        return did_you_mean(next(iter(words)), known)
    pairs = [(word, near[0]) for word in words if (near := near_names(word, known))]
    if not pairs:
        return ""
    return f"; did you mean {', '.join(f'{near} for {word}' for word, near in pairs)}?"
