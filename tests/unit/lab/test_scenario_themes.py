"""Shipped scenarios have themes and pairs, and are found by words."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tidegauge_lab.cli.scenario import scenario
from tidegauge_lab.scenario.loader import shipped_names
from tidegauge_lab.scenario.themes import cure_of, is_about, theme_of, themes


def listed(*words: str) -> list[dict[str, str]]:
    result = CliRunner().invoke(scenario, ["list", "-o", "json", *words])
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_every_shipped_scenario_has_one_theme() -> None:
    named = [name for theme in themes() for name in theme.scenarios]
    assert sorted(named) == sorted(shipped_names())
    assert all(set(theme.title) == {"en", "zh"} for theme in themes())


def test_a_cure_stands_after_its_loss_in_the_same_theme() -> None:
    losses = [name for name in shipped_names() if cure_of(name)]
    assert len(losses) >= 5
    for name in losses:
        cure = cure_of(name)
        assert cure is not None
        order = theme_of(name).scenarios
        assert order.index(name) < order.index(cure)


def test_the_list_is_by_themes_and_narrowed_by_theme_and_words() -> None:
    assert [one["name"] for one in listed()] == [name for theme in themes() for name in theme.scenarios]
    assert {one["theme"] for one in listed("--theme", "groups")} == {"groups"}
    assert "static-members" in {one["name"] for one in listed("--find", "STATIC rebalance")}
    assert listed("--find", "no-such-word") == []


@pytest.mark.parametrize(("words", "found"), [("", True), ("kip Fast", True), ("kip slow", False)])
def test_all_words_must_be_there(words: str, found: bool) -> None:
    assert is_about(words, "kip-279", "Fast fail-over") is found
