"""``tidegauge explore`` as a user meets it: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from tidegauge_proof.cli.explore import explore


def run(*words: str) -> Result:
    return CliRunner().invoke(explore, words)


def test_it_reports_states_and_that_there_are_no_others():
    result = run("--records", "1", "--elections", "1")
    assert result.exit_code == 0
    assert "339 states and 908 transitions under kip-320, 11 steps deep" in result.stdout
    assert "Complete: there is no other state within the bounds.\nAll invariants held.\n" in result.stdout


def test_a_violation_is_reported_with_a_shortest_schedule(tmp_path: Path):
    picture = tmp_path / "found.svg"
    result = run("--rule", "high-watermark", "--fail-fast", "--svg", str(picture))
    assert result.exit_code == 1
    assert "Stopped at the first violation." in result.stdout
    assert "EpochsMonotone is broken in 9 steps:\n    1  the controller elects " in result.stdout
    assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_json_is_one_document():
    result = run("--truncation", "kip-279", "--max-states", "4000", "-o", "json")
    assert result.exit_code == 1
    reported = json.loads(result.stdout)
    assert (reported["truncation"], reported["states"], reported["complete"]) == ("kip-279", 4000, False)
    assert reported["bounds"]["elections"] == 2
    (first, *_) = reported["violations"]
    assert (first["invariant"], first["steps"], len(first["schedule"])) == ("EpochsMonotone", 9, 9)


def test_it_says_where_it_was_bounded():
    result = run("--max-states", "50")
    assert result.exit_code == 0
    assert "Bounded at 50 states: there are more within the bounds." in result.stdout


def test_what_would_have_no_effect_is_refused():
    for words in (("--crashes", "1"), ("--unclean",), ("--controller", "kafka", "--as-model")):
        result = run(*words)
        assert result.exit_code == 2
        assert "--controller" in result.stderr


def test_a_file_of_ones_own_is_said_to_be_run_and_is_explored(tmp_path: Path):
    file = tmp_path / "my_rule.py"
    file.write_text("def truncate(epochs, end, high_watermark, leader_epoch, leader_end):\n    return high_watermark\n")
    result = run("--rule", str(file), "--fail-fast")
    assert result.exit_code == 1
    assert f"Running the rules of {file} in this process" in result.stderr
    assert "under truncate of my_rule.py" in result.stdout
    assert "WeakIsr is broken in 11 steps" in result.stdout


def test_a_fault_in_a_file_of_ones_own_is_reported(tmp_path: Path):
    file = tmp_path / "my_rule.py"
    file.write_text("def truncate(epochs, end, high_watermark, leader_epoch, leader_end):\n    return 1 / 0\n")
    result = run("--rule", str(file), "--records", "1", "-o", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["fault"].startswith("truncate in my_rule.py raises ZeroDivisionError")


def test_a_file_that_is_no_rule_is_a_usage_error(tmp_path: Path):
    file = tmp_path / "my_rule.py"
    for text, said in (("x = 1", "defines no rule"), ("def elect(assigned, live, in_sync): return 1", "--controller")):
        file.write_text(text)
        result = run("--rule", str(file))
        assert result.exit_code == 2
        assert said in result.stderr
    for name, said in (("absent.py", "can not be read"), ("kip-999", "is none of high-watermark")):
        result = run("--rule", str(tmp_path / name))
        assert result.exit_code == 2
        assert said in result.stderr.replace("\n", " ")
