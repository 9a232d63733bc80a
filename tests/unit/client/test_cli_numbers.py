"""Numbers on the command line that Kafka's protocol can't carry: a wrong use, before a cluster is looked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegauge_client.cli.main import run

TOO_LARGE_INT32, TOO_LARGE_INT64 = str(2**31), str(2**63)
AT = ("--topic", "t", "--partition", "0")


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TIDEGAUGE_DIR", "TIDEGAUGE_BOOTSTRAP_SERVER", "TIDEGAUGE_COMMAND_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ("create-topic", "t", "--partitions", TOO_LARGE_INT32),
        ("create-topic", "t", "--replica-assignment", TOO_LARGE_INT32),
        ("alter-topic", "t", "--partitions", TOO_LARGE_INT32),
        ("consume", "t", "--partition", TOO_LARGE_INT32),
        ("consume", "t", "--offset", TOO_LARGE_INT64),
        ("get-offsets", "t", "--time", TOO_LARGE_INT64),
        ("elect-leaders", "--election-type", "preferred", "--topic", "t", "--partition", TOO_LARGE_INT32),
        ("describe-producers", "--topic", "t", "--partition", TOO_LARGE_INT32),
        ("describe-producers", *AT, "--broker-id", TOO_LARGE_INT32),
        ("find-hanging", "--topic", "t", "--partition", TOO_LARGE_INT32),
        ("find-hanging", "--broker-id", TOO_LARGE_INT32),
        ("abort-transaction", *AT, "--start-offset", TOO_LARGE_INT64),
        ("abort-transaction", *AT, "--producer-id", TOO_LARGE_INT64),
        ("abort-transaction", *AT, "--producer-id", "1", "--producer-epoch", "32768"),
        ("abort-transaction", *AT, "--producer-id", "1", "--coordinator-epoch", TOO_LARGE_INT32),
        ("list-transactions", "--producer-id", TOO_LARGE_INT64),
        ("list-transactions", "--duration-filter", TOO_LARGE_INT64),
        ("wait", "--leader", f"t-{TOO_LARGE_INT32}"),
        ("hold-fetch", f"t-{TOO_LARGE_INT32}"),
        ("isolate", "1", "--from", TOO_LARGE_INT32),
        ("kill", TOO_LARGE_INT32),
        ("list-topics", "-b", "localhost:" + "9" * 5000),
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)
def test_a_number_that_is_too_large_is_a_wrong_use(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 of docs/command-line.md; it was a fault in Tidegauge, or said that no cluster is there."""
    assert run([*arguments, "-o", "json"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert json.loads(printed.err)["error"]["name"] == "USAGE"
