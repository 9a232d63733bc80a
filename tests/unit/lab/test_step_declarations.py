"""A step is declared once: its class gives the loader, the narration, HTTP and the page all that they say of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegauge_lab.control.endpoints import document
from tidegauge_lab.scenario import (
    group_player,
    player,
    share_player,
    transaction_player,
    wait_player,
)
from tidegauge_lab.scenario.group_steps import GROUP_STEPS
from tidegauge_lab.scenario.share_steps import SHARE_STEPS
from tidegauge_lab.scenario.step_base import Step
from tidegauge_lab.scenario.steps import STEPS
from tidegauge_lab.scenario.transaction_steps import TRANSACTION_STEPS
from tidegauge_lab.scenario.wait_steps import WAIT_STEPS

DOCS = Path(__file__).parents[3] / "docs/scenarios.md"


def registered(method: Any) -> dict[type, Callable[..., Any]]:
    """Return the methods of a player by the step that they play."""
    return dict(method.dispatcher.registry)


PLAYERS = [
    (WAIT_STEPS, wait_player.WaitPlayer.__dict__["do"]),
    (GROUP_STEPS, group_player.GroupPlayer.__dict__["do"]),
    (SHARE_STEPS, share_player.SharePlayer.__dict__["do"]),
    (TRANSACTION_STEPS, transaction_player.TransactionPlayer.__dict__["do"]),
]


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_each_step_is_played_by_one_player(step: type[Step]) -> None:
    own = registered(player.Player.__dict__["_do"])
    [methods] = [registered(do) for steps, do in PLAYERS if step in steps] or [own]
    assert any(one in methods for one in step.__mro__[: step.__mro__.index(Step)]), f"no player does {step.verb}"


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_each_step_has_a_sentence_or_is_an_expectation(step: type[Step]) -> None:
    assert (
        "sentence" in {name for one in step.__mro__ for name in vars(one) if one is not Step}
    ) != step.is_expectation


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_page_and_schema_have_its_line_and_its_arguments(step: type[Step]) -> None:
    [row] = [
        line
        for line in DOCS.read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| `{step.verb}` | {step.about}")
    ]
    schema = document()["components"]["schemas"][f"step.{step.verb}"]
    assert schema["description"] == step.about
    assert set(schema["properties"]) == set(step.arguments())
    for name, one in step.arguments().items():
        assert f"`{name}`{'*' if one.is_required else ''}" in row
    assert not step.main or step.main in step.arguments()


def test_a_step_without_a_sentence_says_what_it_lacks() -> None:
    class Silent(Step):
        verb = "silent"
        about = "say nothing"

    with pytest.raises(NotImplementedError, match="silent has no sentence: its class declares one, or is_expectation"):
        Silent(line=1).sentence()
