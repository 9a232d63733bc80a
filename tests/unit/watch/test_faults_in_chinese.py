"""The forms of the page: each fault and action, with its parameters, has its text in Chinese (sentences_zh.yaml)."""

from __future__ import annotations

import pytest

from tidegauge.faults.actions import ACTIONS
from tidegauge.faults.table import FAULTS
from tidegauge_client.translation import Translation
from tidegauge_lab.watch.chinese import sentences_of_page

KNOWN = Translation(sentences_of_page())


@pytest.mark.parametrize("declared", [*FAULTS.values(), *ACTIONS.values()], ids=lambda one: one.name)
def test_a_fault_and_its_parameters_are_known_in_chinese(declared) -> None:
    texts = [f"{declared.meaning}.", *(parameter.meaning for parameter in declared.parameters)]
    assert [text for text in texts if text and not KNOWN.knows(text)] == []
