"""The names that a misspelt one may stand for, and every sentence about an unknown name that says so."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tidegauge import settings
from tidegauge.errors import TidegaugeError
from tidegauge.faults.rules import read_rule
from tidegauge.faults.table import INJECT_ERROR
from tidegauge.near_names import did_you_mean, each_did_you_mean, near_names
from tidegauge.v1 import lab_pb2
from tidegauge_broker.log.lab_disk import DiskFault, DiskFaults
from tidegauge_broker.server.lab.injectable import check_api, check_error
from tidegauge_broker.server.verb import broker as broker_verb
from tidegauge_client.cli.main import may_be_meant


def test_the_nearest_name_comes_first_and_capitals_do_not_count() -> None:
    assert near_names("PRODUC", ["Fetch", "Produce", "InitProducerId"], most=2)[0] == "Produce"


def test_a_part_of_a_name_may_stand_for_it_where_none_is_similar() -> None:
    known = ["SASL_AUTHENTICATION_FAILED", "INVALID_CONFIG", "NONE"]
    assert near_names("sasl", known) == ["SASL_AUTHENTICATION_FAILED"]
    assert near_names("in", known) == [], "two letters are a part of too many names"


def test_a_name_with_or_without_its_first_part_comes_first() -> None:
    """Brokers have ``log.retention.ms`` for what topics call ``retention.ms``, which is less similar than others."""
    known = ["local.retention.ms", "retention.ms"]
    assert near_names("log.retention.ms", known, most=2) == ["retention.ms", "local.retention.ms"]
    assert near_names("rack", ["broker.rack", "rock"]) == ["broker.rack"]


def test_a_sentence_ends_with_what_may_be_meant_or_with_where_to_look() -> None:
    assert did_you_mean("fetsch", ["Fetch"], "; see the list") == "; did you mean Fetch?"
    assert did_you_mean("zzz", ["Fetch"], "; see the list") == "; see the list"
    assert did_you_mean("acks", ["acks-1", "acks-all"], most=2) == "; did you mean acks-1 or acks-all?"


def test_of_several_unknown_names_each_has_its_own() -> None:
    known = ["retention.ms", "segment.bytes"]
    assert each_did_you_mean(["retention.msec"], known) == "; did you mean retention.ms?"
    assert (
        each_did_you_mean(["retention.msec", "segment.byte", "zzz"], known)
        == "; did you mean retention.ms for retention.msec, segment.bytes for segment.byte?"
    )
    assert each_did_you_mean(["zzz", "qqq"], known) == ""


@pytest.mark.parametrize(
    ("refused", "sentence"),
    [
        (
            lambda: settings.parse_topic_settings({"retention": "1"}),
            "Unknown topic config name: retention; did you mean retention.ms?",
        ),
        (
            lambda: settings.parse_topic_settings({"log.retention.ms": "1"}),
            "Unknown topic config name: log.retention.ms; did you mean retention.ms?",
        ),
        (
            lambda: settings.check_known(["min.insync.replica"], settings.TOPIC_SETTINGS),
            "Unknown topic config name: min.insync.replica; did you mean min.insync.replicas?",
        ),
        (
            lambda: settings.check_known(["min.insync.replica"], settings.BROKER_SETTINGS),
            "Unknown config name: min.insync.replica; did you mean min.insync.replicas?",
        ),
        (
            lambda: settings.check_known(["zzzz"], settings.BROKER_SETTINGS),
            "Unknown config name: zzzz",
        ),
        (lambda: check_api("leaderandisr"), "there is no API or RPC 'leaderandisr'; did you mean LeaderAndIsr"),
        (
            lambda: check_error(lab_pb2.ErrorFault(rpc="Produce", grpc_status="UNAVAILABEL")),
            "gRPC has no status UNAVAILABEL of a failure; did you mean UNAVAILABLE?",
        ),
        (
            lambda: read_rule({"keys": ["Produce"], "error": "NOT_ENOUGH_REPLICA"}),
            "Kafka's protocol has no error 'NOT_ENOUGH_REPLICA'; did you mean NOT_ENOUGH_REPLICAS",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(refused: Any, sentence: str) -> None:
    with pytest.raises(TidegaugeError) as problem:
        refused()
    assert problem.value.message.startswith(sentence)
    assert ("did you mean" in sentence) == ("did you mean" in problem.value.message)


def test_a_faults_error_and_errno_have_near_names_too() -> None:
    assert "did you mean NOT_ENOUGH_REPLICAS" in INJECT_ERROR.problem({"rpc": "Produce", "error": "NOT_ENOUGH"}, 0)
    with pytest.raises(ValueError, match=r"ENOSPCE is no error of the operating system; did you mean ENOSPC\?"):
        DiskFaults().add(DiskFault(errno_name="ENOSPCE"))
    assert "ENOSPC" in errno.errorcode.values()


def test_an_unknown_verb_may_be_a_part_of_one() -> None:
    assert may_be_meant("topic", ["create-topic", "describe-topic", "wait"])[0].endswith("topic")


def test_a_broker_reports_an_unknown_setting_with_the_nearest_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka warns of a name that it does not know, and starts: a file may hold names for others."""
    file = tmp_path / "server.properties"
    file.write_text("broker.id=0\nzookeeper.connect=127.0.0.1:1\nmin.insync.replica=2\nmy.plugin=3\n")

    monkeypatch.setattr("tidegauge_broker.server.verb.asyncio.run", lambda coroutine: coroutine.close() or 0)
    with caplog.at_level(logging.WARNING):
        CliRunner().invoke(broker_verb, ["--config", str(file)])
    assert [record.getMessage() for record in caplog.records if "unknown" in record.getMessage()] == [
        "The setting min.insync.replica is unknown here and has no effect; did you mean min.insync.replicas?",
        "The setting my.plugin is unknown here and has no effect",
    ]
