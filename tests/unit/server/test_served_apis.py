"""A broker's description of an API of Kafka is one value in its handler's module; all tables derive from these."""

from __future__ import annotations

import pytest

from tidegauge.faults.apis import api_of, is_over_grpc
from tidegauge.kafka.apis import API_VERSIONS, APIS, EXTENSIONS, message_class
from tidegauge.kafka.fields import wires_of
from tidegauge_broker.server.wire.authorized_calls.forms import FORMS
from tidegauge_broker.server.wire.kafka.served import HANDLERS, SERVED, declared, handlers_with
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

NAMES = {api.name for api in SERVED.values()}


def test_each_api_of_the_codec_is_declared_by_one_module() -> None:
    """An API that no module declares would not be served; of one that two declare the second would count."""
    keys = [api.key for api in declared()]
    assert sorted([*keys, API_VERSIONS]) == sorted(APIS)
    assert {key: api.handle for key, api in SERVED.items() if key not in EXTENSIONS} == HANDLERS


def test_extensions_are_served_and_advertised_where_a_setting_says_so_alone() -> None:
    """Kafka 3.9 in ZooKeeper mode does not serve them; without them the table is the broker's own, unchanged."""
    assert handlers_with(frozenset()) is HANDLERS
    extended = handlers_with(EXTENSIONS)
    assert extended.keys() - HANDLERS.keys() == EXTENSIONS
    assert {key for key in HANDLERS if extended[key] is not HANDLERS[key]} == {API_VERSIONS}


def test_the_name_of_an_api_is_that_of_the_codec_and_of_faults() -> None:
    """A fault names an API as its row does, or as gRPC's RPC; each RPC that has a guard belongs to the same API."""
    assert {key: api.name for key, api in SERVED.items()} == {key: api.name for key, api in APIS.items()}
    of_rpcs = {api_of(rpc): SERVED[form.api].name for rpc, form in FORMS.items()}
    assert {name: of_rpcs[name] for name in of_rpcs.keys() & NAMES} == {name: name for name in of_rpcs.keys() & NAMES}
    assert all(is_over_grpc(name) for name in of_rpcs)


@pytest.mark.parametrize("api", [api for api in SERVED.values() if api.divisible], ids=lambda api: api.name)
def test_the_lists_of_a_request_that_is_divisible_exist(api: ServedApi) -> None:
    """An injected error of some topics or partitions leaves the others (``partial_errors``, rule 1)."""
    wires = wires_of(message_class(api.key, response=False))
    for topics, partitions in api.divisible:
        item = wires[topics].item
        assert not partitions or (isinstance(item, type) and partitions in wires_of(item))
