"""Large admin requests at a controller are read, decided and responded to beside its event loop (``large_requests``).

Counted are threads and turns of the event loop, never a duration.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.one_controller import OneController, controller_at

from tidegauge.errors import ErrorCode
from tidegauge.kafka.frames import codec_of
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    assign_replicas_to_dirs,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
)
from tidegauge_broker.server.quorum.calls import Call
from tidegauge_broker.server.quorum.controller.quorum_controller import QuorumController

LISTS: Any = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}
COUNT = 3
TIMEOUT_MS = 60_000


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[OneController]:
    async with controller_at(tmp_path, **LISTS) as found:
        await found.register(0)
        await found.create("t", partitions=COUNT)
        yield found


def acl(name: str) -> create_acls.AclCreation:
    return create_acls.AclCreation(2, name, 3, "User:a", "*", 3, 3)


def _quota(user: str) -> alter_client_quotas.EntryData:
    entity = [alter_client_quotas.EntityData("user", user)]
    return alter_client_quotas.EntryData(entity, [alter_client_quotas.OpData("producer_byte_rate", 9.0, False)])


NAMES = [f"n{one}" for one in range(COUNT)]
REQUESTS: dict[int, Any] = {
    apis.CREATE_ACLS: create_acls.CreateAclsRequest([acl(name) for name in NAMES]),
    apis.DELETE_ACLS: delete_acls.DeleteAclsRequest(
        [delete_acls.DeleteAclsFilter(2, name, 3, None, None, 1, 1) for name in NAMES]
    ),
    apis.ALTER_CLIENT_QUOTAS: alter_client_quotas.AlterClientQuotasRequest([_quota(name) for name in NAMES]),
    apis.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(2, name) for name in NAMES]
    ),
    apis.ALTER_CONFIGS: alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(2, "t")]),
    apis.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        [alter_user_scram_credentials.ScramCredentialDeletion(name, 1) for name in NAMES]
    ),
    apis.CREATE_TOPICS: create_topics.CreateTopicsRequest(
        [create_topics.CreatableTopic(name, 1, 1) for name in NAMES], TIMEOUT_MS
    ),
    apis.CREATE_PARTITIONS: create_partitions.CreatePartitionsRequest(
        [create_partitions.CreatePartitionsTopic(name, 2, None) for name in NAMES], TIMEOUT_MS
    ),
    apis.DELETE_TOPICS: delete_topics.DeleteTopicsRequest(
        [delete_topics.DeleteTopicState(name) for name in NAMES], timeout_ms=TIMEOUT_MS
    ),
    apis.ELECT_LEADERS: elect_leaders.ElectLeadersRequest(
        0, [elect_leaders.TopicPartitions("t", [0, 1, 2])], TIMEOUT_MS
    ),
    apis.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[
            alter_partition_reassignments.ReassignableTopic(
                "t", [alter_partition_reassignments.ReassignablePartition(at, [0]) for at in range(COUNT)]
            )
        ]
    ),
    apis.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments.ListPartitionReassignmentsRequest(
        topics=[list_partition_reassignments.ListPartitionReassignmentsTopics("t", [0, 1, 2])]
    ),
    apis.ALTER_PARTITION: alter_partition.AlterPartitionRequest(
        0, 0, [alter_partition.TopicData(bytes(16), [alter_partition.PartitionData(0)])]
    ),
    apis.ASSIGN_REPLICAS_TO_DIRS: assign_replicas_to_dirs.AssignReplicasToDirsRequest(0, 0),
}


class Asked:
    """A large request: notes the threads in which its message is read and its response made."""

    def __init__(self, one: OneController, key: int, message: Any) -> None:
        self.threads: set[str] = set()
        self.response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        loop, served = asyncio.get_running_loop(), one.handlers[key]
        version = apis.KRAFT_APIS[key].last
        codec = codec_of(key, version, apis.KRAFT_PROTOCOL)
        request, _ = codec.decode_request(memoryview(b"".join(codec.encode(message))), 0)
        noting = self

        class Noting:
            def __getattr__(self, name: str) -> Any:
                noting.note()
                return getattr(request, name)

        def respond(response: Any) -> None:
            self.note()
            decoded, _ = codec.decode_response(memoryview(b"".join(codec.encode(response))), 0)
            loop.call_soon_threadsafe(self.response.set_result, decoded)

        def refuse(error: ErrorCode, text: str) -> None:
            respond(served.refusal(version, request, error, text))

        self.call = Call(key, version, Noting(), respond, refuse, host="127.0.0.1", is_large=True)

    def note(self) -> None:
        is_loops = threading.current_thread() is threading.main_thread()
        self.threads.add("loop" if is_loops else "beside")


def large(one: OneController, key: int, message: Any) -> Asked:
    """Send a request whose frame was large."""
    asked = Asked(one, key, message)
    one.handlers[key].handle(asked.call)
    return asked


@pytest.mark.parametrize("key", REQUESTS, ids=lambda key: type(REQUESTS[key]).__name__)
async def test_a_large_request_is_read_and_responded_to_in_a_thread_and_gets_what_a_small_one_gets(
    one: OneController, key: int
) -> None:
    asked = large(one, key, REQUESTS[key])
    response = await asked.response
    assert asked.threads == {"beside"}
    if key in {apis.CREATE_TOPICS, apis.ALTER_CLIENT_QUOTAS, apis.CREATE_ACLS}:
        return  # changes; the same again is another one
    again = await one.ask(key, REQUESTS[key])
    assert response == again


async def test_a_large_request_that_is_refused_as_a_whole_gets_its_results_in_a_thread(one: OneController) -> None:
    """POLICY_VIOLATION names each item, and so does NOT_CONTROLLER."""
    too_many = [replace(acl("many"), resource_name=f"r{at}") for at in range(10_001)]
    asked = large(one, apis.CREATE_ACLS, create_acls.CreateAclsRequest(too_many))
    response = await asked.response
    assert {result.error_code for result in response.results} == {ErrorCode.POLICY_VIOLATION}
    one.controller._renounce()
    refused = large(one, apis.CREATE_ACLS, REQUESTS[apis.CREATE_ACLS])
    results = (await refused.response).results
    assert [result.error_code for result in results] == [ErrorCode.NOT_CONTROLLER] * COUNT
    assert asked.threads == refused.threads == {"beside"}


async def test_the_loop_serves_others_while_a_large_request_is_read_and_decided(
    one: OneController, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat's contact counts while the queue waits, and its response follows."""
    epoch = one.controller.image.brokers[0].epoch
    may_go_on, decide = threading.Event(), QuorumController._decide
    entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    async def held(controller: QuorumController, active: Any, event: Any) -> Any:
        def waiting(*arguments: Any) -> Any:
            if not entered.done():
                loop.call_soon_threadsafe(entered.set_result, None)
            may_go_on.wait()
            return event.decide(*arguments)

        return await decide(controller, active, replace(event, decide=waiting) if event.is_large else event)

    monkeypatch.setattr(QuorumController, "_decide", held)
    asked = large(one, apis.CREATE_ACLS, REQUESTS[apis.CREATE_ACLS])
    await entered
    beating = one.heartbeat(0, epoch)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asked.response.done()
    assert one.controller._late_contacts is not None
    assert [contact[0] for contact in one.controller._late_contacts] == [0]
    may_go_on.set()
    assert not (await beating).error_code
    assert len((await asked.response).results) == COUNT


async def test_large_requests_are_read_and_responded_to_one_at_a_time(one: OneController) -> None:
    """Two messages of 99,000 items at a time would take twice the memory, and the loop a third of the interpreter."""
    async with one.controller.one_large_at_a_time:
        asked = [large(one, key, REQUESTS[key]) for key in REQUESTS]
        for _ in range(5):
            await asyncio.sleep(0)
        assert [each.threads for each in asked] == [set()] * len(asked)
    await asyncio.gather(*(each.response for each in asked))


async def test_a_large_request_whose_client_has_closed_its_connection_is_not_decided(one: OneController) -> None:
    """A broker that has waited too long sends it again, and the first one would pile up before the second."""
    key = apis.CREATE_ACLS
    dropped, waiting, looks = Asked(one, key, REQUESTS[key]), Asked(one, key, REQUESTS[key]), iter([True])
    async with one.controller.one_large_at_a_time:
        one.handlers[key].handle(replace(dropped.call, is_open=lambda: False))
    one.handlers[key].handle(replace(waiting.call, is_open=lambda: next(looks, False)))
    results = (await waiting.response).results
    assert [result.error_code for result in results] == [ErrorCode.NETWORK_EXCEPTION] * COUNT
    assert dropped.threads == set()
    assert len(one.controller.image.access_lists) == 0


async def test_a_defect_in_reading_a_large_request_costs_it_alone(
    one: OneController, caplog: pytest.LogCaptureFixture
) -> None:
    broken = REQUESTS[apis.CREATE_ACLS]
    asked = Asked(one, apis.CREATE_ACLS, broken)
    odd = create_acls.CreateAclsRequest([None])  # type: ignore[list-item]
    one.handlers[apis.CREATE_ACLS].handle(replace(asked.call, message=odd))
    response = await asked.response
    assert {result.error_code for result in response.results} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert "meets a defect" in caplog.text
    assert not (await one.ask(apis.CREATE_ACLS, broken)).results[0].error_code
