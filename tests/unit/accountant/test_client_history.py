"""Histories that any client may write: accepted lines, and refusals with line and reason (docs/histories.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from transaction_histories import Writer

from tidegauge.errors import TidegaugeError
from tidegauge_lab.accountant.reading.client_history import read_client_histories
from tidegauge_lab.accountant.reading.history_lines import MAX_REFUSED
from tidegauge_lab.accountant.transactions.model import Outcome
from tidegauge_lab.cli.verify import verify

EXAMPLE = Path(__file__).parents[3] / "examples" / "history" / "transactions.jsonl"
INVOKE = {"type": "invoke", "process": "p", "number": 0, "time_us": 5, "op": "send"}
SEND = INVOKE | {"topic": "t", "partition": 0, "value": "a"}
OK = {"type": "ok", "process": "p", "number": 0, "time_us": 6}
POLL = INVOKE | {"op": "poll"}


def read(directory: Path, *lines: object, end: str = "\n"):
    path = directory / "h"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + end)
    return read_client_histories([path])


def test_outcomes_are_found_wherever_they_stand(tmp_path):
    """Several clients write at the same time, and their files are read in any order."""
    (send,) = read(tmp_path, OK | {"offset": 3}, "", SEND).sends
    assert (send.outcome, send.offset, send.invoked_us, send.completed_us) == (Outcome.OK, 3, 5, 6)


def test_without_an_outcome_nothing_is_known(tmp_path):
    (send,) = read(tmp_path, SEND).sends
    assert send.outcome is Outcome.INFO


def test_a_line_that_a_dying_client_left_is_passed_over(tmp_path):
    assert len(read(tmp_path, SEND, '{"type": "ok", "proc', end="").sends) == 1


def test_a_complete_last_line_counts(tmp_path):
    assert len(read(tmp_path, SEND, end="").sends) == 1


@pytest.mark.parametrize(
    ("lines", "where", "reason"),
    [
        ([SEND, '{"type": "ok", "proc'], 2, "no JSON"),
        (["[1]"], 1, "no JSON object"),
        ([SEND | {"type": "done"}], 1, "the type 'done' is none of invoke, ok, fail and info"),
        ([{"process": "p"}], 1, "the field 'type' is missing"),
        ([SEND | {"op": "write"}], 1, "the op 'write' is none of send, send-offsets, commit"),
        ([SEND | {"process": ""}], 1, "the field 'process' is ''"),
        ([SEND | {"number": "0"}], 1, "the field 'number' is '0', not a whole number"),
        ([SEND | {"number": True}], 1, "the field 'number' is True"),
        ([SEND | {"time_us": -1}], 1, "the field 'time_us' is -1"),
        ([SEND | {"partition": 1.5}], 1, "the field 'partition' is 1.5"),
        ([SEND | {"topic": None}], 1, "the topic is None"),
        ([SEND | {"value": 7}], 1, "the field 'value' is 7"),
        ([INVOKE], 1, "the field 'topic' is missing"),
        ([SEND, SEND], 2, "operation 0 of 'p' was invoked before, at"),
        ([SEND, SEND | {"number": 1}], 2, "the value 'a' was sent before, at"),
        ([OK], 1, "operation 0 of 'p' was never invoked"),
        ([SEND, OK, OK], 3, "operation 0 of 'p' has an outcome already"),
        ([SEND, OK | {"time_us": 4}], 2, "time_us is 4, before the invocation at 5"),
        ([SEND, OK | {"offset": -3}], 2, "the field 'offset' is -3"),
        ([SEND | {"partition": None}, OK], 2, "the field 'partition' is missing"),
        ([INVOKE | {"op": "commit"}], 1, "the field 'transaction' is missing"),
        (
            [SEND | {"transaction": "x"}, INVOKE | {"op": "abort", "process": "q", "transaction": "x"}],
            2,
            "transaction 'x' is of process 'p', by",
        ),
        ([POLL | {"isolation": "serializable"}], 1, "neither read_committed nor read_uncommitted"),
        ([POLL, OK], 2, "the field 'records' is missing"),
        ([POLL, OK | {"records": {}}], 2, "the field 'records' is {}, not a list"),
        ([POLL, OK | {"records": [["t", 0, "a"]]}], 2, 'not as ["orders", 0, 17, "value"]'),
        ([POLL, OK | {"records": [], "ends": {"t": 3}}], 2, "'t' in 'ends' is no partition, such as orders-0"),
        ([INVOKE | {"op": "send-offsets", "group": "g", "offsets": [1]}], 1, "'offsets' is [1], not an object"),
        ([INVOKE | {"op": "read-offsets"}], 1, "the field 'group' is missing"),
    ],
)  # fmt: skip
def test_a_line_that_is_not_as_it_should_be_is_refused(lines, where, reason, tmp_path):
    with pytest.raises(TidegaugeError) as refusal:
        read(tmp_path, *lines)
    assert f"h:{where}: " in refusal.value.message
    assert reason in refusal.value.message


def test_several_bad_lines_are_named_the_first_ones(tmp_path):
    with pytest.raises(TidegaugeError) as refusal:
        read(tmp_path, *["x"] * (MAX_REFUSED + 2))
    assert refusal.value.message.count("no JSON") == MAX_REFUSED
    assert refusal.value.message.endswith("and 2 more")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(TidegaugeError, match="can't be read"):
        read_client_histories([tmp_path / "none"])


# The verb


def test_a_history_is_judged_without_a_cluster():
    done = CliRunner().invoke(verify, ["--transactions", str(EXAMPLE)])
    assert done.exit_code == 1, done.output
    assert "Broken: atomicity. 1 torn-transaction: of one transaction some records are committed" in done.output
    assert done.output.endswith("The history breaks: durability, atomicity.\n")
    page = (Path(__file__).parents[3] / "docs" / "histories.md").read_text(encoding="utf-8")
    assert done.output in page
    document = json.loads(CliRunner().invoke(verify, ["--transactions", str(EXAMPLE), "-o", "json"]).output)
    assert document["transactions"]["counts"]["torn-transaction"] == 1
    assert not document["transactions"]["clean"]


def test_a_clean_history_exits_with_0(tmp_path):
    history = Writer()
    history.send("p", "x", "a", 0)
    history.commit("p", "x")
    history.final((0, "a"), end=2)
    path = tmp_path / "clean.jsonl"
    path.write_text(history.text())
    done = CliRunner().invoke(verify, ["--transactions", str(path)])
    assert done.exit_code == 0, done.output
    assert done.output.endswith("The history keeps every guarantee that was checked.\n")


def test_bad_lines_are_refused_before_anything_else_is_said(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text(EXAMPLE.read_text() + "{}\n")
    done = CliRunner().invoke(verify, ["--transactions", str(path)])
    assert done.exit_code == 1
    lines = EXAMPLE.read_text().count("\n")
    assert f"bad.jsonl:{lines + 1}: the field 'type' is missing" in done.output
    assert "torn" not in done.output


def test_a_topic_is_needed_for_everything_else(tmp_path):
    done = CliRunner().invoke(verify, ["--complete"])
    assert done.exit_code == 2
    assert "only --transactions and --shares can do without a topic" in done.output
