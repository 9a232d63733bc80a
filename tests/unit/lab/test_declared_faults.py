"""One declaration of faults: messages, broker, command line, scenario steps, methods and schema agree with it."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fault_strategies import faults

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.messages import from_message, to_message
from tidegauge.faults.model import Direction, Plane
from tidegauge.faults.schema import schema
from tidegauge.faults.table import FAULTS, INJECT_DISK, INJECT_ERROR, ISOLATE, kind_of
from tidegauge.v1 import lab_pb2
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_lab.cli.inject import inject_disk, inject_error
from tidegauge_lab.cli.isolate import isolate
from tidegauge_lab.pytest_plugin.cluster import Cluster
from tidegauge_lab.scenario.steps import STEPS, arguments_of
from tidegauge_lab.switches.fault_calls import FaultCalls

ROOT = Path(__file__).parents[3]
KINDS = list(FAULTS.values())
VERBS = {"isolate": isolate, "inject_error": inject_error, "inject_disk": inject_disk}
UNION = {"cut"}
"""A field that says only that neither of its alternatives is given."""


def table(broker_id=1):
    return FaultTable(broker_id, DiskFaults(sleep=lambda _: None))


@given(faults())
def test_a_fault_survives_its_message(wanted):
    assert from_message(to_message(wanted)) == wanted


@given(faults(), st.integers(0, 9))
@settings(max_examples=300)
def test_the_broker_accepts_what_the_declaration_allows_and_refuses_the_rest_in_its_words(wanted, broker_id):
    problem = wanted.problem(broker_id)
    refused = ""
    try:
        table(broker_id).set(to_message(wanted))
    except TidegaugeError as refusal:
        refused = refusal.message
    # Which errors an RPC's response has a place for, only the broker knows.
    assert refused == problem or (not problem and wanted.kind is INJECT_ERROR)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_each_field_of_the_message_is_one_parameter_and_each_parameter_a_field(kind):
    fields = set(lab_pb2.LabFault.DESCRIPTOR.fields_by_name[kind.message].message_type.fields_by_name)
    declared = {one.message_field for one in kind.parameters}
    assert fields - UNION - {"broker_ids"} == declared


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_options_arguments_and_keywords_are_the_parameters(kind):
    names = [one.name for one in kind.parameters]
    options = {option for one in VERBS[kind.name].params if one.name.startswith("fault_") for option in one.opts}
    assert options == {"--" + name.replace("_", "-") for name in names}
    assert list(arguments_of(STEPS[kind.name])) == ["broker", *names]
    keywords = [one.keyword for one in kind.parameters]
    for owner in (FaultCalls, Cluster):
        assert list(inspect.signature(getattr(owner, kind.name)).parameters) == ["self", "broker", *keywords]


def test_generated_methods_and_tables_are_those_of_the_declarations():
    """After a change of the table: make faults."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate-faults.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        (ISOLATE, {}, "isolate needs from"),
        (ISOLATE, {"from": "disk"}, "from is one of brokers, zookeeper, clients, or a list of broker ids, not 'disk'"),
        (ISOLATE, {"from": []}, "or a list of broker ids"),
        (ISOLATE, {"from": [1]}, "can't be isolated from itself"),
        (ISOLATE, {"from": "clients", "direction": "out"}, "makes no calls to clients"),
        (ISOLATE, {"from": "zookeeper", "drop": 0.5}, "one stream of bytes"),
        (ISOLATE, {"from": "brokers", "direction": "up"}, "direction is one of in, out, both, not 'up'"),
        (ISOLATE, {"from": "brokers", "delay_ms": 0}, "delay_ms is a whole number of 1 ms or more, not 0"),
        (ISOLATE, {"from": "brokers", "delay_ms": 86_400_001}, "delay_ms is at most 86400000 ms"),
        (ISOLATE, {"from": "brokers", "delay_ms": True}, "not True"),
        (ISOLATE, {"from": "brokers", "drop": float("nan")}, "drop is more than 0 and at most 1, not nan"),
        (ISOLATE, {"from": "brokers", "delay_ms": 5, "drop": 0.5}, "give delay_ms or drop, at most one of both"),
        (INJECT_ERROR, {"rpc": "Produce"}, "give error or grpc_status, exactly one of both"),
        (INJECT_ERROR, {"rpc": "Produce", "error": "NO_ERROR"}, "name of an error of Kafka's protocol"),
        (INJECT_ERROR, {"rpc": 7, "error": "NOT_CONTROLLER"}, "rpc is a text, not 7"),
        (INJECT_ERROR, {"rpc": "Produce", "grpc_status": "unknown", "after_effect": 1}, "true or false, not 1"),
        (INJECT_DISK, {"errno": "EIO", "operation": "chew"}, "operation is one of append"),
        (INJECT_DISK, {"errno": "EIO", "nth": 0}, "nth is a whole number of 1 or more, not 0"),
    ],
)
def test_what_the_declaration_refuses_is_said_in_a_sentence(kind, values, words):
    assert words in kind.problem(values, 1)
    assert words in kind.wanted(values).problem(1)


def test_an_unknown_parameter_or_fault_is_refused_by_name():
    with pytest.raises(TidegaugeError, match="isolate has no parameter 'delay'; its parameters are from, direction"):
        ISOLATE.wanted({"from": "brokers", "delay": 5})
    with pytest.raises(TidegaugeError, match="there is no fault 'isolated'; the faults are isolate"):
        kind_of("isolated")


def test_values_are_those_of_json_and_defaults_count_as_not_given():
    wanted = ISOLATE.wanted({"from": (0, 2), "direction": Direction.BOTH, "delay_ms": None, "seed": 0})
    assert wanted.values == {"from": [0, 2]}
    assert (wanted["direction"], wanted.brokers) == ("both", (0, 2))
    assert ISOLATE.wanted({"from": Plane.CLIENTS}).values == {"from": "clients"}
    assert INJECT_ERROR.wanted({"rpc": "Fetch", "error": ErrorCode.NONE, "grpc_status": "unavailable"}).values == {
        "rpc": "Fetch",
        "grpc_status": "UNAVAILABLE",
    }


def test_the_schema_names_each_parameter_with_its_bounds():
    found = schema()
    assert list(found) == list(FAULTS)
    isolation = found["isolate"]
    assert isolation["required"] == ["broker", "from"]
    assert not isolation["additionalProperties"]
    assert isolation["properties"]["delay_ms"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 86_400_000,
        "description": "Delay each message instead",
        "x-unit": "ms",
    }
    assert isolation["allOf"] == [{"not": {"required": ["delay_ms", "drop"]}}]
    assert found["inject_disk"]["allOf"] == [{"oneOf": [{"required": ["delay_ms"]}, {"required": ["errno"]}]}]
    assert found["inject_error"]["properties"]["times"]["default"] == 1
