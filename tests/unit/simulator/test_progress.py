"""How far a long search is, and what an interrupted one leaves: ``simulate`` and ``explore``."""

from __future__ import annotations

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tidegauge_proof.cli.explore import explore
from tidegauge_proof.cli.progress import CLEAR_LINE, ProgressLine
from tidegauge_proof.cli.simulate import simulate
from tidegauge_proof.exhaustive.explorer import Explorer
from tidegauge_proof.simulator import coordinator_search
from tidegauge_proof.simulator import search as searching
from tidegauge_proof.simulator.coordinator_search import search_coordinators_in_pieces
from tidegauge_proof.simulator.record import search_in_pieces

STEPS = ("--steps", "20", "--jobs", "1")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_that_is_erased_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with ProgressLine(lambda: "3 of 9 runs", terminal):
        pass
    written = terminal.getvalue()
    assert written.startswith(f"{CLEAR_LINE}3 of 9 runs, 0 s; Ctrl-C")
    assert written.endswith(CLEAR_LINE)
    assert "\n" not in written


@pytest.mark.parametrize(("stream", "term"), [(io.StringIO(), "xterm"), (Terminal(), "dumb")])
def test_nothing_is_written_where_no_cursor_can_be_moved(
    stream: io.StringIO, term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    with ProgressLine(lambda: "3 of 9 runs", stream):
        pass
    assert stream.getvalue() == ""


def interrupted_at(run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes while this run is in progress."""
    original = searching._run

    def one(plan: searching.SearchPlan, number: int) -> Any:
        if plan.seed + number == run:
            raise KeyboardInterrupt
        return original(plan, number)

    monkeypatch.setattr(searching, "_run", one)


def test_ctrl_c_in_simulate_prints_what_came_of_the_runs_done(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted_at(3, monkeypatch)
    done = CliRunner().invoke(simulate, ["--runs", "9", *STEPS])
    assert done.exit_code == 130
    assert done.stderr == "Interrupted: 3 of 9 runs were done.\n"
    assert done.stdout.startswith("3 runs from seed 0 under kip-320: 60 steps")
    assert "All invariants held." in done.stdout


def test_ctrl_c_in_simulate_gives_json_of_the_runs_done(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted_at(2, monkeypatch)
    done = CliRunner().invoke(simulate, ["--runs", "9", *STEPS, "-o", "json"])
    assert done.exit_code == 130
    assert json.loads(done.stdout)["runs"] == 2


def test_a_search_in_pieces_that_is_interrupted_says_what_its_file_keeps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    interrupted_at(5, monkeypatch)
    monkeypatch.setattr("tidegauge_proof.cli.simulate.search_in_pieces", partial(search_in_pieces, piece_runs=2))
    record = tmp_path / "record"
    done = CliRunner().invoke(simulate, ["--runs", "9", *STEPS, "--record", str(record)])
    assert done.exit_code == 130
    assert done.stderr.splitlines() == [
        "Interrupted: 5 of 9 runs were done.",
        f"{record} keeps 4 of them; the same command goes on there.",
    ]
    assert done.stdout.startswith("4 runs from seed 0")


def groups_interrupted_at(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes while the history of this seed is in progress."""
    original = coordinator_search.group_history_of

    def one(number: int, steps: int, *, tells: bool) -> Any:
        if number == seed:
            raise KeyboardInterrupt
        return original(number, steps, tells=tells)

    monkeypatch.setattr(coordinator_search, "group_history_of", one)


def test_ctrl_c_in_simulate_groups_prints_what_came_of_the_histories_done(monkeypatch: pytest.MonkeyPatch) -> None:
    groups_interrupted_at(3, monkeypatch)
    done = CliRunner().invoke(simulate, ["--groups", "--runs", "9", *STEPS])
    assert done.exit_code == 130
    assert done.stderr == "Interrupted: 3 of 9 runs were done.\n"
    assert done.stdout.startswith("3 histories of a group from seed 0: 60 steps")
    assert done.stdout.endswith("All invariants held.\n")


def test_ctrl_c_before_the_first_history_of_a_group_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    groups_interrupted_at(0, monkeypatch)
    done = CliRunner().invoke(simulate, ["--groups", "--runs", "9", *STEPS])
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "Interrupted: 0 of 9 runs were done.\n")
    found = json.loads(CliRunner().invoke(simulate, ["--groups", "--runs", "9", *STEPS, "-o", "json"]).stdout)
    assert (found["runs"], found["violations"]) == (0, [])


def test_a_search_of_groups_in_pieces_that_is_interrupted_goes_on_where_its_file_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_pieces = partial(search_coordinators_in_pieces, piece_runs=2)
    monkeypatch.setattr("tidegauge_proof.cli.simulate_coordinators.search_coordinators_in_pieces", in_pieces)
    arguments = ["--groups", "--runs", "6", *STEPS, "--record", str(tmp_path / "record")]
    with monkeypatch.context() as patched:
        groups_interrupted_at(5, patched)
        done = CliRunner().invoke(simulate, arguments)
    assert done.exit_code == 130
    assert done.stderr.splitlines() == [
        "Interrupted: 5 of 6 runs were done.",
        f"{tmp_path / 'record'} keeps its whole pieces; the same command goes on there.",
    ]
    assert [json.loads(line)["seed"] for line in (tmp_path / "record").read_text().splitlines()] == [0, 2]
    groups_interrupted_at(3, monkeypatch)
    assert CliRunner().invoke(simulate, arguments).exit_code == 0, "seed 3 stands in the file"


def test_ctrl_c_in_explore_prints_what_was_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Explorer._level
    levels: list[int] = []

    def level(self: Explorer, frontier: Any) -> Any:
        if len(levels) == 3:
            raise KeyboardInterrupt
        levels.append(len(frontier))
        return original(self, frontier)

    monkeypatch.setattr(Explorer, "_level", level)
    done = CliRunner().invoke(explore, ["--records", "1", "--elections", "1"])
    assert done.exit_code == 130
    assert " 3 steps deep" in done.stdout
    assert "Interrupted: there may be more states within the bounds." in done.stdout
