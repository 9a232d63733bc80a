"""``tidegauge verify`` without a cluster: what it prints, what it reads, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from small_books import kept, log, report, sent, values

from tidegauge.errors import TidegaugeError
from tidegauge_client.cluster_file import BrokerEntry, ClusterFile
from tidegauge_lab.accountant.audit import Report
from tidegauge_lab.accountant.books import Kind, ReadRecord, show
from tidegauge_lab.accountant.reading.topic_books import read_consumed
from tidegauge_lab.cli.verify import own_directories, text_lines, verify


def text_of(result: Report) -> str:
    return "\n".join(text_lines(result))


def test_balanced_books_say_so_last_and_name_what_was_not_checked() -> None:
    lines = text_of(report([sent(0), sent(1, acks="1")], log(*values("v0", "v1")))).splitlines()
    assert lines[0] == "Topic t: 1 partition, 2 committed records, 0 replicas compared"
    assert lines[1].split()[:3] == ["acks", "sent", "acknowledged"]
    assert [line.split()[:3] for line in lines[2:4]] == [["all", "1", "1"], ["1", "1", "1"]]
    assert all(line.startswith("Not checked: ") for line in lines[4:-1])
    assert lines[-1] == "The books balance."


def test_each_violation_comes_with_its_meaning_its_levels_and_some_examples() -> None:
    history = [sent(number, acks="1" if number % 2 else "all") for number in range(9)]
    text = text_of(report(history, log(end=20)))
    assert "9 lost (acks=1: 4, acks=all: 5): acknowledged, and not in the committed log" in text
    assert "    t-0: record 0 of producer p ('v0') was acknowledged at offset 0, which holds nothing" in text
    assert "    and 4 more" in text
    assert text.endswith("The books do not balance: 9 lost.")


def test_a_phantom_is_a_note_until_the_histories_are_complete() -> None:
    books = log(kept(0), kept(1, "x"))
    text = text_of(report([sent(0)], books))
    assert "Note: 1 phantom: in the log, but in no history" in text
    assert text.endswith("The books balance.")
    assert text_of(report([sent(0)], books, is_complete=True)).endswith("The books do not balance: 1 phantom.")


def test_the_document_has_all_keys_always() -> None:
    document = report(None).to_json()
    assert set(document) == {
        "topic", "balanced", "partitions", "records", "replicas", "read_from_disk", "acks", "counts", "findings",
        "not_checked",
    }  # fmt: skip
    assert set(document["counts"]) == {kind.value for kind in Kind}
    assert json.loads(json.dumps(document)) == document


@pytest.mark.parametrize("arguments", [[], ["t", "--complete"], ["t", "--history", "/no/such/file"], ["t", "--x"]])
def test_usage_is_judged_before_anything_is_contacted(arguments: list[str], tmp_path: Path) -> None:
    assert CliRunner().invoke(verify, [*arguments, "--dir", str(tmp_path)]).exit_code == 2


def test_without_a_cluster_it_fails_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGAUGE_BOOTSTRAP_SERVER", raising=False)
    result = CliRunner().invoke(verify, ["t", "--dir", str(tmp_path), "-o", "json"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert json.loads(result.stderr)["error"]["name"] == "BROKER_NOT_AVAILABLE"


def test_event_logs_and_log_directories_are_those_of_the_cluster_that_is_asked(tmp_path: Path) -> None:
    assert own_directories(["127.0.0.1:1"], tmp_path) == (None, {})
    broker = BrokerEntry(0, "127.0.0.1", 1, str(tmp_path / "broker-0"))
    ClusterFile("127.0.0.1:2", zookeeper_managed=True, profile="fast", brokers=[broker]).save(tmp_path)
    own = own_directories(["127.0.0.1:1"], tmp_path)
    assert own == (tmp_path / "logs", {0: tmp_path / "broker-0" / "data"})
    assert own_directories(["127.0.0.1:9"], tmp_path) == (None, {}), "another cluster than the one in the folder"


def test_what_consumers_have_read_is_what_consume_prints(tmp_path: Path) -> None:
    path = tmp_path / "reads"
    lines = [
        {"topic": "t", "partition": 1, "offset": 5, "key": None, "value": "é"},
        {"topic": "u", "partition": 0, "offset": 0, "key": None, "value": "x"},
        {"topic": "t", "partition": 0, "offset": 6, "key": "k", "value": {"base64": "/w=="}},
    ]
    whole = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(whole + '{"topic":"t","par')
    assert list(read_consumed(path, "t")) == [ReadRecord(1, 5, None, "é".encode()), ReadRecord(0, 6, b"k", b"\xff")]
    for wrong in ("hello\n", '{"topic":"t"}\n', '{"topic":"t","partition":0,"offset":0,"key":{},"value":""}\n'):
        path.write_text(wrong)
        with pytest.raises(TidegaugeError, match="does not hold lines of `consume -o json`"):
            list(read_consumed(path, "t"))


@pytest.mark.parametrize(
    ("content", "shown"),
    [(None, "null"), (b"a", "'a'"), (b"\xff", r"'\\xff'"), (b"x" * 100, "'" + "x" * 40 + "...'"), (b"", "''")],
)
def test_values_are_shown_on_one_short_line(content: bytes | None, shown: str) -> None:
    assert show(content) == shown
