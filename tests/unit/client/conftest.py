from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegauge_client.explaining_in_chinese import explanations_in_chinese
from tidegauge_client.sentences import Sentence

# Helper modules of these tests; importmode=importlib gives a test no directory of its own on the path.
sys.path.insert(0, str(Path(__file__).parent))
_OF_OTHERS = ("its record makes no sense", "a record cannot be read", "no broker could read them")
"""Words of brokers and ZooKeeper about a problem, which stay in English."""


@pytest.fixture(autouse=True)
def _what_is_explained_is_known_in_chinese(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that each sentence of ``explain`` in a test has one in Chinese (explanations_zh.yaml)."""
    said: list[str] = []
    make = Sentence.__init__

    def noting(self: Sentence, *args: Any, **values: Any) -> None:
        make(self, *args, **values)
        said.extend([self.text, f"Rule: {self.rule}.", *([f"Changes with: {self.change}."] if self.change else [])])

    monkeypatch.setattr(Sentence, "__init__", noting)
    yield
    words = [one for one in dict.fromkeys(said) if not any(part in one for part in _OF_OTHERS)]
    assert [one for one in words if not explanations_in_chinese().knows(one)] == []
