"""An error in the results of some topics or partitions of a request, while its others take effect. Pure.

Rules:
    1. Before its effect, a request that changes something is split: the meant part is refused, the rest handled, and
       the response is both. That is so for the APIs whose items Kafka treats one by one (``ServedApi.divisible``);
       AddPartitionsToTxn, for one, is all or nothing, and is refused as a whole.
    2. A real response gets the error in its results for the topic: in the meant partitions' results, if its
       results name partitions.
    3. A Fetch response of a session leaves out partitions without news: a meant partition is added to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tidegauge.kafka.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.wire.kafka import error_responses
from tidegauge_broker.server.wire.kafka.named_partitions import NameOf, partition_number, topic_name

_RESULTS = ("responses", "topics", "results")
_PARTITION_RESULTS = ("partition_responses", "partitions")


class RequestPart(NamedTuple):
    """A part of a request.

    Attributes:
        topic: of it.
        partitions: of the topic; empty: all.
    """

    topic: str
    partitions: Collection[int] = ()

    def has(self, topic: str | None, partition: int = -1) -> bool:
        """Whether a topic, or a partition of it, is meant; partition -1: any."""
        return topic == self.topic and (partition < 0 or not self.partitions or partition in self.partitions)


def is_whole(meant: RequestPart, named: Iterable[TopicPartition]) -> bool:
    """Return whether all that a request names is meant."""
    return all(meant.has(at.topic, at.partition) for at in named)


def split(
    divisible: Sequence[tuple[str, str]], request: Any, meant: RequestPart, name_of: NameOf
) -> tuple[Any, Any] | None:
    """Return the admitted and the refused part of a request, or None.

    None: it can't be split. Rule 1.

    Args:
        divisible: which fields of the request list topics, and which of those partitions; empty: none.
        request: the decoded message.
        meant: the part of it to be refused.
        name_of: the name of the topic with an id.
    """
    if not divisible:
        return None
    left, refused = {}, {}
    for topics, partitions in divisible:
        parts = [_split_topic(item, partitions, meant, name_of) for item in getattr(request, topics) or ()]
        left[topics] = [part for part, _ in parts if part is not None]
        refused[topics] = [part for _, part in parts if part is not None]
    return dataclasses.replace(request, **left), dataclasses.replace(request, **refused)


def _split_topic(item: Any, partitions: str, meant: RequestPart, name_of: NameOf) -> tuple[Any, Any]:
    """Return a topic's admitted and refused part; None: it has none."""
    name = topic_name(item, name_of)
    if not partitions:
        return (None, item) if meant.has(name) else (item, None)
    found: tuple[list[Any], list[Any]] = ([], [])
    for partition in getattr(item, partitions):
        found[meant.has(name, partition_number(partition))].append(partition)
    kept, refused = (dataclasses.replace(item, **{partitions: one}) if one else None for one in found)
    return kept, refused


def join(response: Any, refused: Any) -> None:
    """Put the results of the refused part into the real response to the rest."""
    name = next(name for name in _RESULTS if hasattr(refused, name))
    results = list(getattr(response, name))
    for result in getattr(refused, name):
        partitions = next((one for one in _PARTITION_RESULTS if hasattr(result, one)), None)
        same = next((one for one in results if _topic(one) == _topic(result)), None) if partitions else None
        if partitions is None or same is None:
            results.append(result)
        else:
            setattr(same, partitions, [*getattr(same, partitions), *getattr(result, partitions)])
    setattr(response, name, results)


def _topic(result: Any) -> tuple[str, bytes | None]:
    return result.name, getattr(result, "topic_id", None)


def put(response: Any, error: int, meant: RequestPart, name_of: NameOf) -> bool:
    """Put an error into what a real response says of a part; return whether it says anything of it. Rule 2."""
    by_partition = [item for item, partition in _results(response, meant, name_of) if partition >= 0]
    by_topic = [item for item, partition in _results(response, meant, name_of) if partition < 0]
    found = by_partition if meant.partitions and by_partition else by_topic or by_partition
    for item in found:
        error_responses.set_error(item, error)
    return bool(found)


def _results(message: Any, meant: RequestPart, name_of: NameOf, topic: str | None = None) -> Iterator[tuple[Any, int]]:
    """Yield a part's places for error codes with their partitions; -1: the topic's."""
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if not isinstance(value, (list, tuple)):
            continue
        for item in value:
            if not dataclasses.is_dataclass(item):
                continue
            name = topic_name(item, name_of) or topic
            number = partition_number(item)
            if error_responses.has_error(item) and name is not None and meant.has(name, number):
                yield item, number
            yield from _results(item, meant, name_of, name)


def add_to_fetch(
    response: FetchResponse, error: int, topic: str | bytes, partitions: Iterable[int], name_of: NameOf
) -> None:
    """Add partitions of a topic that the response of a fetch session leaves out. Rule 3.

    Args:
        response: the real response.
        error: number of the error.
        topic: by its name or, where the request names it so, its id.
        partitions: those that are meant.
        name_of: the name of the topic with an id.
    """
    name = topic if isinstance(topic, str) else name_of(topic)
    topics = list(response.responses)
    same = next((one for one in topics if topic_name(one, name_of) == name), None)
    if same is None:
        same = FetchableTopicResponse(topic) if isinstance(topic, str) else FetchableTopicResponse(topic_id=topic)
        topics.append(same)
    there = {one.partition_index for one in same.partitions}
    added = [PartitionData(one, error, high_watermark=-1) for one in partitions if one not in there]
    same.partitions = [*same.partitions, *added]
    response.responses = topics
