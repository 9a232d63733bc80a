"""A long search in pieces: pieces in the file are not run again, and the sum equals one search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegauge_proof.cli.simulate import simulate
from tidegauge_proof.simulator import record as record_module
from tidegauge_proof.simulator.record import search_in_pieces
from tidegauge_proof.simulator.search import SearchPlan, SearchResult, search

LOSING = SearchPlan(seed=20, runs=5, steps=80, rule="high-watermark")


def sums(result: SearchResult) -> tuple[object, ...]:
    return result.runs, result.steps, result.events, result.acknowledged, result.losses, result.findings


def no_search(*_: object, **__: object) -> SearchResult:
    raise AssertionError("this piece stands in the file")


def test_pieces_are_one_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "record.jsonl"
    whole = sums(search(LOSING))
    assert whole[-1], "seeds that break the rule are worth more here"
    assert sums(search_in_pieces(LOSING, file, piece_runs=2)) == whole
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["seed"], line["runs"]) for line in lines] == [(20, 2), (22, 2), (24, 1)]
    monkeypatch.setattr(record_module, "search", no_search)
    assert sums(search_in_pieces(LOSING, file, piece_runs=2)) == whole


def test_a_search_goes_on_where_the_file_ends(tmp_path: Path):
    """And half a line, of a machine that stopped, is no piece."""
    file = tmp_path / "record.jsonl"
    whole = sums(search_in_pieces(LOSING, file, piece_runs=2))
    lines = file.read_text().splitlines()
    file.write_text(f"{lines[0]}\n{lines[1][:50]}")
    assert sums(search_in_pieces(LOSING, file, piece_runs=2)) == whole
    assert [json.loads(line)["seed"] for line in file.read_text().splitlines() if line.endswith("}")] == [20, 22, 24]


def test_other_searches_keep_to_themselves(tmp_path: Path):
    """One file may hold both modes."""
    file = tmp_path / "record.jsonl"
    search_in_pieces(SearchPlan(seed=20, runs=1, steps=80), file)
    search_in_pieces(SearchPlan(seed=20, runs=1, steps=80, power="may-lose"), file)
    assert [json.loads(line)["mode"] for line in file.read_text().splitlines()] == ["must-survive", "may-lose"]


def test_the_verb_keeps_a_record(tmp_path: Path):
    file = tmp_path / "record.jsonl"
    arguments = ["--runs", "2", "--steps", "50", "--jobs", "1", "--record", str(file), "-o", "json"]
    first = CliRunner().invoke(simulate, arguments)
    assert first.exit_code == 0, first.output
    again = json.loads(CliRunner().invoke(simulate, arguments).output)
    assert (again["runs"], again["steps"], again["losses"]) == (2, 100, 0)
    assert again["seconds"] == json.loads(first.output)["seconds"]
    refused = CliRunner().invoke(simulate, [*arguments[:-4], "--record", str(tmp_path / "no" / "file")])
    assert refused.exit_code != 0
    assert "can not be used" in refused.output
