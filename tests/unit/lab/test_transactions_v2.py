"""The producer of transactions v2 of scenarios (transactions_v2.py), with brokers that only give responses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.record_batch import iterate_headers
from tidegauge_lab.scenario import producer_process, transaction_steps, transactions_v2
from tidegauge_lab.scenario.producers import SETTINGS

NODE = SimpleNamespace(node_id=1, host="127.0.0.1", port=9, error_code=0)
FIXED = {
    apis.FIND_COORDINATOR: SimpleNamespace(coordinators=[NODE]),
    apis.METADATA: SimpleNamespace(
        brokers=[NODE], topics=[SimpleNamespace(partitions=[SimpleNamespace(partition_index=0, leader_id=1)])]
    ),
}


def identity(epoch: int, error: ErrorCode = ErrorCode.NONE) -> Any:
    return SimpleNamespace(producer_id=7, producer_epoch=epoch, error_code=error)


def produced(offset: int) -> Any:
    partition = SimpleNamespace(error_code=0, base_offset=offset)
    return SimpleNamespace(responses=[SimpleNamespace(partition_responses=[partition])])


class Brokers:
    """Gives responses in their order, or raises the problems among them; keeps requests and limits of versions."""

    def __init__(self, *responses: Any) -> None:
        self.asked: list[tuple[int, Any, dict[str, Any]]] = []
        self._responses = list(responses)

    def channel(self, *_: object, **__: object) -> Brokers:
        return self

    async def request(self, key: int, message: Any, _seconds: float, **versions: Any) -> Any:
        if key in FIXED:
            return FIXED[key]
        self.asked.append((key, message, versions))
        response = self._responses.pop(0)
        if isinstance(response, TidegaugeError):
            raise response
        return response


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(*responses: Any) -> tuple[transactions_v2.TransactionsV2, Brokers]:
        brokers = Brokers(*responses)
        monkeypatch.setattr(transactions_v2, "KafkaChannel", brokers.channel)
        settings = {"bootstrap.servers": "a:1", "transactional.id": "t", "transaction.timeout.ms": "1000"}
        return transactions_v2.TransactionsV2(settings), brokers

    return made


def test_each_transaction_has_the_epoch_of_the_end_before_and_begins_at_sequence_0(make: Any) -> None:
    producer, brokers = make(identity(0), produced(0), produced(1), identity(1), produced(3))
    producer.init(1.0)
    assert producer.send("story", 0, [("a", 1), ("b", 1)], 1.0) == [{"offset": 0}, {"offset": 1}]
    producer.commit(1.0)
    assert producer.send("story", 0, [("c", 1)], 1.0) == [{"offset": 3}]
    sent = [message.topic_data[0].partition_data[0].records for key, message, _ in brokers.asked if key == apis.PRODUCE]
    [a, b, c] = [next(iter(iterate_headers(one))) for one in sent]
    assert [(one.producer_epoch, one.base_sequence) for one in (a, b, c)] == [(0, 0), (0, 1), (1, 0)]
    assert all(one.is_transactional for one in (a, b, c))
    limits = {key: versions for key, _, versions in brokers.asked}
    assert limits[apis.PRODUCE]["at_most"] == 12, "the leader adds the partition"
    assert limits[apis.END_TXN]["at_least"] == 5, "the response has the next epoch"


def test_an_end_without_a_response_is_sent_again_with_the_epoch_of_its_transaction(make: Any) -> None:
    late = TidegaugeError(ErrorCode.REQUEST_TIMED_OUT)
    producer, brokers = make(identity(4), late, identity(4, ErrorCode.CONCURRENT_TRANSACTIONS), identity(5))
    producer.init(5.0)
    producer.abort(5.0)
    ends = [message for key, message, _ in brokers.asked if key == apis.END_TXN]
    assert [(one.producer_epoch, one.committed) for one in ends] == [(4, False)] * 3


def test_a_refusal_is_the_outcome_of_its_command(make: Any) -> None:
    producer, _ = make(identity(0), identity(0, ErrorCode.PRODUCER_FENCED))
    producer.init(1.0)
    assert producer_process.obey(producer, {"do": "commit", "limit_seconds": 1.0})["error"] == "PRODUCER_FENCED"
    offsets = {"do": "send_offsets", "group": "g", "offsets": [["story-0", 1]], "limit_seconds": 1.0}
    assert producer_process.obey(producer, offsets)["error"] == "INVALID_REQUEST"


def test_every_library_that_a_step_names_can_be_started() -> None:
    assert set(transaction_steps.LIBRARIES) == set(producer_process.LIBRARIES) == set(SETTINGS)
