"""A launcher prepares the codecs that a node's first requests need: nothing is compiled a second time."""

from __future__ import annotations

from tidegauge.kafka.compiler import codec
from tidegauge.kafka.frames import codec_of
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.messages.vote import PartitionData, VoteRequest
from tidegauge.kafka.kraft.record_types import decode_record, encode_record
from tidegauge.kafka.metadata_records.no_op_record import NoOpRecord
from tidegauge_broker.server.warm_up import warm_up


def test_a_vote_and_a_record_find_their_codecs_compiled() -> None:
    warm_up()
    before = codec.cache_info().misses, codec_of.cache_info().misses
    codec_of(apis.VOTE, apis.KRAFT_APIS[apis.VOTE].last, apis.KRAFT_PROTOCOL)
    decode_record(encode_record(NoOpRecord(), 0))
    assert (codec.cache_info().misses, codec_of.cache_info().misses) == before


def test_nested_messages_have_their_methods() -> None:
    warm_up()
    assert all("first_use" not in kind.__init__.__code__.co_name for kind in (VoteRequest, PartitionData))
