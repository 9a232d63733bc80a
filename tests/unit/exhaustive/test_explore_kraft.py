"""``tidegauge explore --world kraft`` and ``kraft-without-elr`` as a user meets them (KIP-966)."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from tidegauge_proof.cli import explore_kraft as verb
from tidegauge_proof.cli.explore import explore
from tidegauge_proof.exhaustive.kraft_small import Act, KRaftBounds, KRaftExploration, KRaftFound


def run(*words: str) -> Result:
    return CliRunner().invoke(explore, words)


def test_it_says_that_it_has_seen_all() -> None:
    result = run("--world", "kraft", "--stops", "0", "--power-cuts", "0")
    assert result.exit_code == 0, result.output
    assert "2 states at rest and 1 transitions of kraft, 1 steps deep, in " in result.stdout
    assert "Complete: there is no other state within the bounds.\nAll invariants held.\n" in result.stdout


def test_each_bound_reaches_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--records 0 --stops 2 --flushes 1 --crashes 3 --power-cuts 4 --max-states 1"
    found = json.loads(run("--world", "kraft-without-elr", *words.split(), "-o", "json").stdout)
    assert (found["world"], found["states"], found["complete"]) == ("kraft-without-elr", 1, False)
    assert found["bounds"] == {
        "elr": False,
        "records": 0,
        "flushes": 1,
        "stops": 2,
        "kills": 3,
        "power_losses": 4,
        "haste": True,
    }
    asked: list[KRaftBounds] = []
    monkeypatch.setattr(verb, "explore_kraft", lambda bounds, **_: asked.append(bounds))
    run("--world", "kraft")
    assert asked == [KRaftBounds(records=1, flushes=0, stops=1, kills=0, power_losses=1)]


def test_a_violation_is_printed_with_its_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search itself is in ``test_kraft_small``; it takes seconds."""
    loss = [(Act("write"), Act("stop", 1)), (Act("power loss", 2),), (Act("start", 2),)]

    def search(_: KRaftBounds, *, result: KRaftExploration, **more: object) -> None:
        del more
        result.states, result.complete = 7, False
        result.found.append(KRaftFound("K1", loss, "K1: leader 2 of orders-0 lacks acknowledged records [0]"))

    monkeypatch.setattr(verb, "explore_kraft", search)
    result = run("--world", "kraft-without-elr", "--fail-fast")
    assert result.exit_code == 1
    assert "Stopped at the first violation.\nK1 is broken in 3 steps:\n" in result.stdout
    assert "    1  write, and at once stop 1\n    2  power loss 2\n    3  start 2\n" in result.stdout
    assert "lacks acknowledged records [0]" in result.stdout


def test_bounds_of_other_worlds_are_refused() -> None:
    refused = run("--world", "kraft", "--replicas", "3")
    assert refused.exit_code == 2
    assert "--world kraft takes no --replicas" in refused.stderr
    assert "--world quorum takes no --stops" in run("--world", "quorum", "--stops", "1").stderr
