"""The interface: every path with its method, body, query and responses, from which routes and OpenAPI derive. Pure.

To add one: declare it here, and give ``Control`` a method of its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegauge import __version__
from tidegauge.event_log import KINDS
from tidegauge.faults.actions import ACTIONS
from tidegauge.faults.rules import SCHEMA as RULE_SCHEMA
from tidegauge.faults.schema import vocabulary
from tidegauge.faults.table import FAULTS
from tidegauge.groups import GROUP_STATES
from tidegauge.kafka.apis import APIS
from tidegauge_lab.control.shapes import Schema, flag, integer, list_of, map_of, object_of, text
from tidegauge_lab.scenario.step_base import Step
from tidegauge_lab.scenario.steps import STEPS
from tidegauge_lab.transaction_conditions import SHOWN_STATES

MAX_TIMEOUT_MS = 600_000
WAIT_TIMEOUT_MS = 30_000
VERBS = (*ACTIONS, *FAULTS)
TARGETS = (
    "A broker's id; controller, leader-of:TOPIC-PARTITION, follower-of:TOPIC-PARTITION, coordinator-of:group:GROUP, "
    "coordinator-of:transaction:ID, coordinator-of:share:GROUP or with a partition coordinator-of:share:GROUP/T-P; "
    "in KRaft mode a controller's id, else zookeeper"
)
PARTITION = "TOPIC-PARTITION, such as orders-0"
_TIMEOUT = {
    **integer("How long to wait, in milliseconds", 0, maximum=MAX_TIMEOUT_MS),
    "default": WAIT_TIMEOUT_MS,
}
_API = {
    "type": "string",
    "description": "Of an API, by Kafka's name",
    "enum": sorted(api.name for api in APIS.values()),
}
_BROKER_IDS = list_of(integer("A broker's id"), "Broker ids, in any order")

BROKER_BODY = {
    "type": "object",
    "description": "The parameters of the action or fault: components action.VERB and fault.VERB, without the broker",
}
_LEADER = {
    "anyOf": [
        integer("This broker"),
        object_of({"not": integer("Any broker but this one")}, ["not"], "Another leader than this broker"),
    ]
}
GROUP = object_of(
    {
        "id": text("The group"),
        "state": {"type": "string", "enum": list(GROUP_STATES)},
        "members": integer("How many members"),
        "generation": integer("This generation or a later one; of a consumer group its epoch"),
        "epochs": map_of(
            integer("This member epoch or a later one"),
            "Member epochs of a consumer group, by client.id or instance id",
        ),
        "lag": integer("At most this lag, in records, over all partitions of the group"),
    },
    ["id"],
    "A consumer group",
)
TRANSACTION = object_of(
    {
        "id": text("The transactional id"),
        "state": {"type": "string", "enum": [one.value for one in SHOWN_STATES]},
        "epoch": integer("This producer epoch or a later one"),
    },
    ["id"],
    "A transactional id",
)
CONDITIONS: dict[str, dict[str, Any]] = {
    "isr": map_of(_BROKER_IDS, f"By {PARTITION}: exactly these are in sync, and the leader says so"),
    "leader": map_of(_LEADER, f"By {PARTITION}: this broker leads, by the cluster's view and its own"),
    "high_watermark": map_of(integer("An offset"), f"By {PARTITION}: the leader's high watermark is this or more"),
    "in_sync": list_of(text("A topic"), "All replicas of these topics are in sync; empty: of all topics"),
    "elr": map_of(_BROKER_IDS, f"By {PARTITION}: exactly these are eligible leaders (KRaft mode, KIP-966)"),
    "fenced": list_of(integer("A broker", 0), "Each of these is fenced, or no member", 1),
    "unfenced": list_of(integer("A broker", 0), "Each of these is a live member", 1),
    "truncated": object_of(
        {"partition": text(PARTITION), "broker": integer("Its replica there; default: any", 0)},
        ["partition"],
        about="A replica of the partition has truncated its log, now or before",
    ),
    "event": object_of(
        {
            "kind": text("A kind of docs/events.md", enum=sorted(KINDS)),
            "partition": text(PARTITION),
            "broker": integer("Whose; default: any broker's", 0),
            "since_ms": integer("Not before, in ms since 1970", 0),
        },
        ["kind"],
        about="An event log holds such an event",
    ),
    "group": GROUP,
    "transaction": TRANSACTION,
    "quorum_leader": {
        "anyOf": [integer("This controller", 0), {"type": "boolean", "enum": [True], "description": "Any"}],
        "description": "The quorum has a leader that has committed a record of its epoch",
    },
    "metadata_offset": integer("The high watermark of the quorum's metadata log is this or more", 0),
    "ready": {"type": "boolean", "enum": [True], "description": "Every broker is up and sees all others"},
}
WAIT_BODY = object_of(
    {**CONDITIONS, "timeout_ms": _TIMEOUT},
    about="One condition",
    oneOf=[{"required": [name]} for name in CONDITIONS],
)
STEPS_BODY = object_of(
    {
        "steps": list_of({"type": "object", "minProperties": 1}, "Steps as in a scenario file: a verb each", 1),
        "timeout_ms": {**_TIMEOUT, "default": 120_000},
    },
    ["steps"],
)
FAULT_BODY = object_of(
    {"rules": list_of(RULE_SCHEMA, "Asked in this order; the first that affects a request decides", 1)}, ["rules"]
)
FAULT_WAIT_BODY = object_of(
    {
        "hits": integer("Requests that were affected or observed", 1),
        "held": integer("Responses that are held now", 1),
        "timeout_ms": _TIMEOUT,
    },
    oneOf=[{"required": ["hits"]}, {"required": ["held"]}],
)
ADVERTISED_BODY = map_of(text("HOST:PORT"), "By broker id: where Kafka clients reach the broker")
RESET_BODY = object_of({"topics": flag("Delete topics and groups that were not there before", default=True)})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path and method.

    Attributes:
        name: of the method of ``Control`` that serves it, and OpenAPI's operationId.
        body: schema of the request's body; None: it takes none.
        needs_body: whether the body must be there.
        query: schemas of the query's fields; all may be left out.
        responses: what the statuses besides 400 and 403 mean.
    """

    method: str
    path: str
    name: str
    meaning: str
    responses: Mapping[int, str]
    body: Schema | None = None
    needs_body: bool = False
    query: Mapping[str, Schema] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)


_OF_TARGET = {"target": TARGETS}
ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/v1/cluster", "cluster", "The cluster: ready or what it lacks, addresses, controller, brokers",
             {200: "The cluster now"}),
    Endpoint("GET", "/v1/quorum", "quorum", "The quorum of controllers as its leader has it, in KRaft mode",
             {200: "The quorum now", 404: "The cluster is in ZooKeeper mode", 409: "There is no leader"}),
    Endpoint("GET", "/v1/topics", "topics", "The names of all topics", {200: "The topics"}),
    Endpoint("GET", "/v1/topics/{topic}/{partition}", "partition", "A partition and each of its replicas",
             {200: "The partition now", 404: "There is no such partition"}),
    Endpoint("GET", "/v1/groups", "groups", "All consumer groups with their states",
             {200: "The groups; `lacks` names the brokers whose own are missing"}),
    Endpoint("GET", "/v1/groups/{group}", "group", "A consumer group as its coordinator has it, with offsets and lag",
             {200: "The group now", 404: "Its coordinator does not know it"}),
    Endpoint("GET", "/v1/shares/{group}/{topic}/{partition}", "share",
             "A share partition: what its leader has in flight, and what its share coordinator keeps",
             {200: "The share partition now, each null if it is not there", 404: "There is no such partition"}),
    Endpoint("GET", "/v1/transactions", "transactions", "All transactional ids with their states",
             {200: "The transactional ids; `lacks` names the brokers whose own are missing"}),
    Endpoint("GET", "/v1/transactions/{transaction}", "transaction",
             "A transactional id as its coordinator has it, with where its producer's transaction is open",
             {200: "The transactional id now", 404: "Its coordinator does not know it"}),
    Endpoint("POST", "/v1/brokers/{target}/{verb}", "broker", "Do a declared action, or put a fault in force",
             {200: "It is so", 404: "There is no such broker", 409: "No broker has the role, or it can't be done"},
             BROKER_BODY, about=_OF_TARGET),
    Endpoint("POST", "/v1/steps", "steps", "Play steps of a scenario file; the first that fails ends it",
             {200: "All steps did what they say", 408: "A step waited in vain", 409: "A step did not do what it says"},
             STEPS_BODY, needs_body=True),
    Endpoint("POST", "/v1/wait", "wait", "Wait until a condition holds",
             {200: "It holds", 404: "There is no such topic", 408: "It does not; `actual` has the actual state"},
             WAIT_BODY, needs_body=True),
    Endpoint("POST", "/v1/reset", "reset", "All brokers up, nothing in force, no topics or groups but the former ones",
             {200: "It is so", 409: "A group still has members, or a topic can't be deleted"}, RESET_BODY),
    Endpoint("POST", "/v1/faults", "add_fault", "Put rules for requests of clients in force",
             {200: "In force at every broker; its id, and the wires whose requests each rule meets"}, FAULT_BODY,
             needs_body=True),
    Endpoint("GET", "/v1/faults", "faults", "All faults on requests, with their hits", {200: "The faults now"}),
    Endpoint("DELETE", "/v1/faults", "clear_faults", "End all faults on requests", {200: "What they held is released"}),
    Endpoint("GET", "/v1/faults/{id}", "fault", "One fault with its hits",
             {200: "The fault now", 404: "There is none"}),
    Endpoint("DELETE", "/v1/faults/{id}", "delete_fault", "End one fault",
             {200: "What it held is released", 404: "There is none"}),
    Endpoint("POST", "/v1/faults/{id}/wait", "wait_fault", "Wait until a fault has met or holds a number of requests",
             {200: "It has", 404: "There is none", 408: "It has not; `actual` is the fault"}, FAULT_WAIT_BODY,
             needs_body=True),
    Endpoint("GET", "/v1/requests", "requests", "The requests that arrived while rules were in force, oldest first",
             {200: "The requests after that number"},
             query={"after": integer("The number of the last request that is known"), "client_id": text("Of a client"),
                    "api": _API, "limit": integer("How many", 1)}),
    Endpoint("POST", "/v1/snapshots/{name}", "snapshot", "Copy the data of the whole cluster under a name",
             {200: "Taken; the cluster is ready again"}),
    Endpoint("POST", "/v1/snapshots/{name}/restore", "restore", "Put a snapshot in place of the cluster's data",
             {200: "Restored; the cluster is ready", 404: "There is no such snapshot"}),
    Endpoint("PUT", "/v1/advertised", "advertise", "Let brokers advertise other addresses to Kafka clients; restarts",
             {200: "Every broker is ready and advertises its address"}, ADVERTISED_BODY, needs_body=True),
    Endpoint("GET", "/v1/events", "events", "What happened on all brokers, in causal order",
             {200: "The events after that number"},
             query={"after": integer("The number of the last event that is known"), "limit": integer("How many", 1)}),
    Endpoint("GET", "/v1/openapi.json", "openapi", "This interface", {200: "OpenAPI 3.1"}),
)  # fmt: skip


def document() -> dict[str, Any]:
    """Return the interface as OpenAPI 3.1."""
    paths: dict[str, Any] = {}
    for one in ENDPOINTS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegauge",
            "version": __version__,
            "description": "Steers a running Tidegauge cluster. Each response is true when it is given: a POST returns "
            "when its effect is there.",
        },
        "paths": paths,
        "components": {
            "schemas": {
                "Error": _ERROR,
                **{
                    f"{room.removesuffix('s')}.{name}": one
                    for room, kinds in vocabulary().items()
                    for name, one in kinds.items()
                },
                **{f"step.{name}": _step_schema(kind) for name, kind in STEPS.items()},
            }
        },
    }


_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "message": {"type": "string"}},
            "required": ["name", "message"],
        },
        "actual": {"description": "Of an expired wait: the actual state"},
    },
    "required": ["error"],
}


def _operation(one: Endpoint) -> dict[str, Any]:
    parameters = [_path_parameter(name, one) for name in names_in(one.path)]
    parameters += [{"name": name, "in": "query", "required": False, "schema": sort} for name, sort in one.query.items()]
    failures = {400: "Malformed: an unknown field, a wrong value", 403: "Of a web page, or by another name"}
    return {
        "operationId": one.name,
        "summary": one.meaning,
        **({"parameters": parameters} if parameters else {}),
        **({"requestBody": _request_body(one)} if one.body is not None else {}),
        "responses": {
            str(status): {
                "description": words,
                "content": {"application/json": {"schema": _response_schema(status)}},
            }
            for status, words in sorted({**failures, **one.responses}.items())
        },
    }


def _request_body(one: Endpoint) -> dict[str, Any]:
    return {"required": one.needs_body, "content": {"application/json": {"schema": one.body}}}


def _response_schema(status: int) -> dict[str, Any]:
    return {"type": "object"} if status < 400 else {"$ref": "#/components/schemas/Error"}


def _path_parameter(name: str, one: Endpoint) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if name == "verb":
        schema["enum"] = list(VERBS)
    if name in ("partition", "id"):
        schema = {"type": "integer", "minimum": 0}
    about = one.about.get(name, "")
    return {"name": name, "in": "path", "required": True, "schema": schema, **({"description": about} if about else {})}


def names_in(path: str) -> list[str]:
    """Return the names in braces of a path."""
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _step_schema(kind: type[Step]) -> dict[str, Any]:
    arguments = kind.arguments()
    return {
        "type": "object",
        "description": kind.about,
        "properties": {name: {"description": one.about} for name, one in arguments.items()},
        "required": [name for name, one in arguments.items() if one.is_required],
        "additionalProperties": False,
    }
