"""One declaration of faults: messages, broker, command line, scenario steps, methods and schema agree with it."""

import inspect
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.fault_strategies import faults, values_of

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.actions import ACTIONS, CLEAR_FAULTS, KILL
from tidegauge.faults.messages import from_message, to_message
from tidegauge.faults.model import Direction, Plane
from tidegauge.faults.requests import read_request
from tidegauge.faults.schema import schema, vocabulary
from tidegauge.faults.table import FAULTS, INJECT_DISK, INJECT_ERROR, ISOLATE, kind_of
from tidegauge.v1 import lab_pb2
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_client.cli.main import root
from tidegauge_client.cli.verb_table import GROUP
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.pytest_plugin.cluster import AsyncCluster, Cluster
from tidegauge_lab.scenario.step_base import in_a_line
from tidegauge_lab.scenario.steps import STEPS
from tidegauge_lab.switches.fault_calls import FaultCalls

ROOT = Path(__file__).parents[3]
KINDS = list(FAULTS.values())
VERBS = {kind.name: entry_points(group=GROUP)[kind.name.replace("_", "-")].load() for kind in KINDS}
UNION = {"partitioned"}
"""A field that says only that neither of its alternatives is given."""


def table(broker_id=1):
    return FaultTable(broker_id, DiskFaults(sleep=lambda _: None))


@given(faults())
def test_a_fault_survives_its_message(wanted):
    assert from_message(to_message(wanted)) == wanted


@given(faults(), st.integers(0, 9))
@settings(max_examples=examples(300))
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
    assert list(STEPS[kind.name].arguments()) == ["broker", *names]
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


BASES = {
    "isolate": [{"from": "brokers"}, {"from": "brokers", "drop": 0.5}],
    "inject_error": [
        {"rpc": "Fetch", "error": "NOT_LEADER_OR_FOLLOWER"},
        {"rpc": "Fetch", "grpc_status": "UNAVAILABLE", "topic": "t", "probability": 0.5},
    ],
    "hold_requests": [{"rpc": "Fetch"}, {"rpc": "Fetch", "topic": "t"}],
    "inject_disk": [{"delay_ms": 5}, {"errno": "EIO"}],
    "skew_clock": [{"frozen": True}, {"offset_ms": 5}, {"set_to": "2030-01-01T00:00:00Z"}],
}
SAMPLES = {
    "integer": 7,
    "number": 0.25,
    "text": "words",
    "flag": True,
    "choice": "in",
    "error": "NOT_CONTROLLER",
    "peers": [2],
    "time": "2031-01-01T00:00:00Z",
}


@pytest.mark.parametrize(("kind", "name"), [(kind, one.name) for kind in KINDS for one in kind.parameters])
def test_each_parameter_shows_in_both_wordings(kind, name):
    """A fault is worded by its declaration: a parameter that is added there can't be forgotten in the sentences."""
    assert kind.name in BASES, f"{kind.name} needs examples in BASES"
    value = SAMPLES[kind.parameter(name).kind]
    value = {"operation": "append", "caller": "brokers"}.get(name, value)
    pairs = [(kind.wanted(base), kind.wanted({**base, name: value})) for base in BASES[kind.name]]
    assert [one for one in pairs if one[0].text != one[1].text and one[0].order(1) != one[1].order(1)]


SEVERAL = {"holds"}
"""Parameters that only one target's request has: the verb and the method always release, the step never does."""


BESIDE_THE_BROKER = {"sync": {"partition"}}
"""Parameters that a verb takes in one argument with the broker, in any order."""


@pytest.mark.parametrize("kind", ACTIONS.values(), ids=lambda kind: kind.name)
def test_each_action_is_a_verb_a_step_and_a_method_with_its_parameters(kind):
    parameters = {one.name for one in kind.parameters} - SEVERAL - BESIDE_THE_BROKER.get(kind.name, set())
    verb, *flags = kind.words.split()
    command = root.get_command(click.Context(root), verb)
    assert command is not None
    assert parameters <= {one.name.removeprefix("fault_") for one in command.params}
    assert set(flags) <= {option for one in command.params for option in one.opts}
    if not flags:
        assert command.help.startswith(kind.meaning)
    assert parameters <= set(STEPS[kind.verb].arguments())
    if kind.verb != "hold_fetch" or kind.name == "hold_fetch":
        assert STEPS[kind.verb].about == in_a_line(kind.meaning)
    for owner in (AsyncCluster, Cluster, *([LocalCluster] if kind.room == "process" else [])):
        assert parameters <= set(inspect.signature(getattr(owner, kind.name)).parameters)


def test_the_page_names_only_declared_faults_and_actions_and_has_all_that_stand_on_cards():
    """The form's are built from the schema; cards and details have buttons of their own."""
    page = ROOT / "lab" / "tidegauge_lab" / "watch" / "page"
    script = "".join((page / name).read_text(encoding="utf-8") for name in ("brokers.js", "details.js"))
    named = set(re.findall(r'"([a-z_]+)"', "".join(re.findall(r"(?:action: |texts\(|\? )[^,;)]*", script))))
    cards = {kind.name for kind in ACTIONS.values() if kind.room != "broker"}
    assert cards <= named
    assert named & (set(ACTIONS) | set(FAULTS)) == cards | {"heal", "isolate"}
    form = (page / "form.js").read_text(encoding="utf-8")
    assert not [name for name in [*ACTIONS, *FAULTS] if f'"{name}"' in form]


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        (ISOLATE, {}, "isolate needs from"),
        (
            ISOLATE,
            {"from": "disk"},
            "from is one of brokers, zookeeper, clients, controllers, or a list of ids, not 'disk'",
        ),
        (ISOLATE, {"from": []}, "or a list of ids"),
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
    with pytest.raises(TidegaugeError, match=r"kill has no parameter 'hard'; its parameters are expire$"):
        KILL.wanted(1, {"hard": True})
    with pytest.raises(TidegaugeError, match=r"there is no fault or action 'slay'; there is isolate, .*, kill"):
        read_request("slay", 1, {})


@given(st.data(), st.sampled_from(list(ACTIONS.values())))
def test_an_action_has_the_values_that_its_parameters_allow(data, kind):
    values = {one.name: data.draw(values_of(one)) for one in kind.parameters}
    wanted = kind.wanted(1, values)
    assert (wanted.target, {name: wanted[name] for name in values}) == (1, values)
    assert read_request(kind.name, 1, values) == wanted


def test_only_an_action_on_a_process_has_zookeeper_as_its_target():
    assert KILL.wanted("zookeeper", {}).target == "zookeeper"
    with pytest.raises(TidegaugeError, match=r"clear_faults needs a broker's id$"):
        CLEAR_FAULTS.wanted("zookeeper", {})
    for wrong in (None, True, -1, "1", [1]):
        with pytest.raises(TidegaugeError, match="kill needs a broker's id, or 'zookeeper'"):
            KILL.wanted(wrong, {})


def test_values_are_those_of_json_and_defaults_count_as_not_given():
    wanted = ISOLATE.wanted({"from": (0, 2), "direction": Direction.BOTH, "delay_ms": None, "seed": 0})
    assert wanted.values == {"from": [0, 2]}
    assert (wanted["direction"], wanted.brokers) == ("both", (0, 2))
    assert ISOLATE.wanted({"from": Plane.CLIENTS}).values == {"from": "clients"}
    assert INJECT_ERROR.wanted({"rpc": "Fetch", "error": ErrorCode.NONE, "grpc_status": "unavailable"}).values == {
        "rpc": "Fetch",
        "grpc_status": "UNAVAILABLE",
    }


def test_the_vocabulary_has_all_faults_and_actions():
    found = vocabulary()
    assert found["faults"] == schema()
    assert list(found["actions"]) == list(ACTIONS)
    assert found["actions"]["start"]["properties"]["held"]["items"]["pattern"] == "^.+-[0-9]+$"
    assert found["actions"]["kill"]["properties"]["broker"]["anyOf"][1] == {"const": "zookeeper"}
    assert found["actions"]["hold_fetch"]["required"] == ["broker", "partition"]


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
