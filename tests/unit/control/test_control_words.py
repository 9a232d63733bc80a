"""The meaning of the control's words: targets, steps, conditions, events, the baseline, the OpenAPI document."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidegauge.partition import TopicPartition
from tidegauge_client.cluster_file import BrokerEntry, ClusterFile
from tidegauge_client.kafka_wire import NoKafkaListener
from tidegauge_lab.control import endpoints
from tidegauge_lab.control.advertised import advertise
from tidegauge_lab.control.conditions import cluster_conditions
from tidegauge_lab.control.journal import Journal
from tidegauge_lab.control.played import read_steps
from tidegauge_lab.control.problems import RefusedError
from tidegauge_lab.control.reset import Baseline
from tidegauge_lab.control.shapes import problem
from tidegauge_lab.control.targets import read_target
from tidegauge_lab.local.plan import first_plan
from tidegauge_lab.local.roles import GROUP, TRANSACTION, Coordinated, Role, RoleKind
from tidegauge_lab.local.wanted import Wanted
from tidegauge_lab.scenario import broker_steps

ORDERS = {"orders": [[0, 1, 2]]}


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("1", 1),
        ("zookeeper", "zookeeper"),
        ("controller", Role(RoleKind.CONTROLLER)),
        ("leader-of:orders-0", Role(RoleKind.LEADER, TopicPartition("orders", 0))),
        ("follower-of:a-b-12", Role(RoleKind.FOLLOWER, TopicPartition("a-b", 12))),
        ("coordinator-of:group:a:b", Role(RoleKind.COORDINATOR, of=Coordinated(GROUP, "a:b"))),
        ("coordinator-of:transaction:t", Role(RoleKind.COORDINATOR, of=Coordinated(TRANSACTION, "t"))),
        ("coordinator-of:group:a/b", Role(RoleKind.COORDINATOR, of=Coordinated(GROUP, "a/b"))),
        ("leader-of/orders-0", Role(RoleKind.LEADER, TopicPartition("orders", 0))),
        ("follower_of/a-b-12", Role(RoleKind.FOLLOWER, TopicPartition("a-b", 12))),
        ("coordinator-of/group/a/b:c", Role(RoleKind.COORDINATOR, of=Coordinated(GROUP, "a/b:c"))),
        ("coordinator-of/group:a/b", Role(RoleKind.COORDINATOR, of=Coordinated(GROUP, "a/b"))),
        ("coordinator-of/transaction/t", Role(RoleKind.COORDINATOR, of=Coordinated(TRANSACTION, "t"))),
    ],
)
def test_targets(text: str, target: object):
    """Roles have two forms in a path: the word, and the command line's option with its value."""
    assert read_target(text) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "leader-of:",
        "leader-of:orders",
        "coordinator-of:g",
        "leader:orders-0",
        "1" * 5000,
        "leader-of/",
        "leader-of/orders",
        "coordinator-of/g",
        "leader/orders-0",
        "controller/orders-0",
    ],
)
def test_what_is_no_target_is_refused(text: str):
    with pytest.raises(RefusedError) as refused:
        read_target(text)
    assert refused.value.status == 400


THREE = first_plan(Path("/c"), Wanted(mode="zookeeper"), free=lambda _: True).file
OF_KRAFT = first_plan(Path("/c"), Wanted(mode="kraft"), free=lambda _: True).file


def test_steps_may_name_controllers_where_there_are_any():
    """A cluster in KRaft mode has nodes beside its brokers, and its brokers an end that others lack."""
    wanted = [{"pause": 3000}, {"isolate": {"broker": 1, "from": "controllers"}}]
    assert len(read_steps(wanted, ORDERS, OF_KRAFT, 10.0).steps) == 2
    with pytest.raises(RefusedError, match="there is no broker 3000"):
        read_steps(wanted[:1], ORDERS, THREE, 10.0)
    with pytest.raises(RefusedError, match="in KRaft mode alone"):
        read_steps(wanted[1:], ORDERS, THREE, 10.0)
    with pytest.raises(RefusedError, match="stand in a scenario file"):
        read_steps([{"wait_epoch": 1, "kraft": {"epoch": 0}}], ORDERS, OF_KRAFT, 10.0)


def test_steps_are_those_of_scenario_files():
    """One vocabulary: the loader of scenario files reads them, by number instead of line."""
    read = read_steps([{"kill": 1}, {"hold_fetch": {"brokers": [2]}, "note": "lags"}], ORDERS, THREE, 10.0)
    assert [type(step) for step in read.steps] == [broker_steps.Kill, broker_steps.HoldFetch]
    assert [step.line for step in read.steps] == [1, 2]
    assert read.steps[1].note == "lags"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ([{"kill": 1}, {"kil": 1}], "steps:2: there is no 'kil'"),
        ([{"kill": 3}], "steps:1: there is no broker 3"),
        ([{"kill": 1, "stop": 2}], "steps:1: a step has one verb"),
        ([{"wait_hw": {"partition": "orders-1", "hw": {"0": 1}}}], "steps:1: there is no partition orders-1"),
        ([{"isolate": {"broker": 1}}], "steps:1: isolate needs 'from'"),
    ],
)
def test_wrong_steps_are_refused_before_anything_is_done(wrong: list[dict[str, Any]], named: str):
    with pytest.raises(RefusedError) as refused:
        read_steps(wrong, ORDERS, THREE, 10.0)
    assert refused.value.status == 400
    assert named in refused.value.message


def test_the_partition_may_be_left_out_only_while_there_is_one_topic():
    """In a scenario the first topic is meant; a running cluster has no first one."""
    internal = {"__consumer_offsets": [[0]]}
    assert read_steps([{"wait_isr": [1]}], ORDERS | internal, THREE, 10.0)
    with pytest.raises(RefusedError, match="wait_isr needs 'partition': the cluster has 2 topics"):
        read_steps([{"wait_isr": [1]}], ORDERS | {"payments": [[0]]}, THREE, 10.0)


def test_conditions_are_those_of_the_wait_verb():
    found, named = cluster_conditions("leader", {"orders-0": {"not": 1}, "orders-1": 2})
    assert [condition.text for condition in found] == ["leader orders-0!=1", "leader orders-1=2"]
    assert named == [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    assert [one.text for one in cluster_conditions("in_sync", [])[0]] == ["in-sync"]
    assert [one.text for one in cluster_conditions("elr", {"orders-0": [1, 2]})[0]] == ["elr orders-0=1,2"]
    assert [one.text for one in cluster_conditions("fenced", [1, 2])[0]] == ["fenced 1", "fenced 2"]
    assert [one.text for one in cluster_conditions("unfenced", [3])[0]] == ["unfenced 3"]
    with pytest.raises(RefusedError):
        cluster_conditions("isr", {"orders": [1]})


def test_events_have_numbers_and_say_what_is_no_longer_kept():
    journal = Journal(kept=3)
    journal.add([{"kind": name} for name in "abcde"])
    assert journal.after(0, 10) == {
        "events": [{"number": 3, "kind": "c"}, {"number": 4, "kind": "d"}, {"number": 5, "kind": "e"}],
        "next": 5,
        "dropped": 2,
    }
    assert journal.after(3, 1) == {"events": [{"number": 4, "kind": "d"}], "next": 4, "dropped": 0}
    assert journal.after(5, 9) == {"events": [], "next": 5, "dropped": 0}


def test_a_reset_deletes_what_came_since_and_no_internal_topic():
    before = Baseline(frozenset({"kept"}), frozenset({"old"}))
    added = before.added(["kept", "new", "__consumer_offsets", "__transaction_state"], ["old", "g"])
    assert added == (["new"], ["g"])


async def test_groups_that_no_listener_lets_this_client_see_are_none_of_a_resets():
    """All listeners for Kafka clients ask for credentials, which the lab does not have."""

    class Secured:
        async def list_topics(self) -> list[str]:
            return ["kept", "__consumer_offsets"]

        async def list_groups(self, timeout_ms: int) -> list[Any]:
            raise NoKafkaListener("its brokers advertise", "PLAINTEXT")

    assert await Baseline.of(cast("Any", Secured())) == Baseline(frozenset({"kept", "__consumer_offsets"}))


def test_openapi_names_every_path_and_every_reference_is_there():
    document = endpoints.document()
    assert document["openapi"].startswith("3.1")
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert len({one["operationId"] for one in operations}) == len(operations) == len(endpoints.ENDPOINTS)
    assert {"fault.isolate", "action.kill", "step.kill", "Error"} <= document["components"]["schemas"].keys()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            named = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"]
            assert named == endpoints.names_in(path)
            for response in operation["responses"].values():
                reference = response["content"]["application/json"]["schema"].get("$ref")
                assert reference in {None, "#/components/schemas/Error"}


KEYWORDS = {
    "type", "description", "properties", "required", "additionalProperties", "items", "minItems", "minProperties",
    "minLength", "minimum", "maximum", "exclusiveMinimum", "enum", "default", "anyOf", "oneOf", "allOf", "not",
}  # fmt: skip


def keywords_in(schema: Any) -> set[str]:
    """All keywords of a schema but the names of its fields."""
    if isinstance(schema, list):
        return {word for one in schema for word in keywords_in(one)}
    if not isinstance(schema, dict):
        return set()
    inner = {name: one for name, one in schema.items() if name not in {"properties", "enum", "default", "required"}}
    fields = schema.get("properties", {}).values()
    return {*schema, *(word for one in [*inner.values(), *fields] for word in keywords_in(one))}


@pytest.mark.parametrize("endpoint", [one for one in endpoints.ENDPOINTS if one.body], ids=lambda one: one.name)
def test_every_keyword_of_a_body_is_one_that_is_checked(endpoint: endpoints.Endpoint):
    """A keyword that the OpenAPI document promises and the check does not know would be accepted silently."""
    assert keywords_in(endpoint.body) <= KEYWORDS


@pytest.mark.parametrize(
    ("schema", "value", "wrong"),
    [
        ({"type": "integer"}, True, "a whole number"),
        ({"type": "number", "exclusiveMinimum": 0}, float("nan"), "more than 0"),
        ({"type": "number", "maximum": 1}, 1.5, "1 or less"),
        ({"type": "string", "minLength": 1}, "", "not empty"),
        ({"type": "object", "minProperties": 1}, {}, "not empty"),
        ({"not": {"required": ["a", "b"]}}, {"a": 1, "b": 1}, "at most one of a, b"),
        ({"allOf": [{"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}]}, {}, "exactly one of a, b"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, None, "a whole number or a text"),
        ({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}, -1, "0 or more"),
    ],
)
def test_a_value_is_checked_by_its_schema(schema: dict[str, Any], value: Any, wrong: str):
    assert wrong in problem(schema, value, "x")


@pytest.mark.parametrize(
    "address", ["h x:9", "h\n:9", ":9", "h:", "h:0", "h:65536", "h:1:2", "PLAINTEXT://h:1", "-h:1"]
)
def test_an_address_that_a_broker_could_not_advertise_is_refused_before_anything_stops(address: str):
    broker = BrokerEntry(0, "127.0.0.1", 1, "broker-0")
    local: Any = SimpleNamespace(file=SimpleNamespace(brokers=[broker]))
    with pytest.raises(RefusedError) as refused:
        advertise(local, {"0": address})
    assert refused.value.status == 400


@pytest.mark.parametrize("address", ["127.0.0.1:32771", "localhost:1", "docker.example:65535", "[::1]:9092"])
def test_addresses_that_clients_reach_are_advertised(address: str):
    changed: list[Any] = []
    file = ClusterFile("127.0.0.1:2", True, "fast", [BrokerEntry(0, "127.0.0.1", 1, "broker-0")])
    local: Any = SimpleNamespace(
        file=file,
        kafka_bootstrap_servers=[address],
        change_brokers=lambda brokers, ids: changed.append((brokers[0].advertised, ids)),
    )
    forgotten: list[int] = []
    done = advertise(local, {"0": address}, lambda _, broker_ids: forgotten.extend(broker_ids))
    assert done == {"kafka_bootstrap_servers": address, "restarted": [0]}
    assert changed == [(address, [0])]
    assert forgotten == [0], "an address that a client has altered has precedence over the broker's file"


def test_all_brokers_restart_when_followers_can_not_use_the_addresses_of_clients_any_more():
    """The first address that is mapped takes Kafka's protocol from among the brokers; the next ones change nothing."""
    restarted: list[Any] = []
    brokers = [BrokerEntry(one, "127.0.0.1", 10 + one, f"broker-{one}", 20 + one) for one in range(3)]
    local: Any = SimpleNamespace(file=ClusterFile("127.0.0.1:2", True, "fast", brokers), kafka_bootstrap_servers=[])

    def change(changed: list[BrokerEntry], ids: list[int]) -> None:
        local.file = replace(local.file, brokers=changed)
        restarted.append(ids)

    local.change_brokers = change
    for number in (1, 2):
        advertise(local, {str(number): f"h:{number}"}, lambda *_: None)
    assert restarted == [[0, 1, 2], [2]]
