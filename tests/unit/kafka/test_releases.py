"""Releases of Kafka that a broker passes for: what their brokers serve and support."""

from __future__ import annotations

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.apis import BROKER_PROTOCOL
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL
from tidegauge.kafka.release_versions import VERSIONS
from tidegauge.kafka.releases import Release, release_of
from tidegauge_broker.server.cluster.kraft.supported import SUPPORTED
from tidegauge_lab.local.as_kafka import as_kafka


@pytest.mark.parametrize(("name", "is_kraft"), [("3.9", False), ("4.3", True)])
def test_the_release_that_a_mode_is_true_to_has_all_that_is_served(name: str, is_kraft: bool) -> None:
    """The tables of this project and the release's own definitions are the same."""
    protocol = KRAFT_BROKER_PROTOCOL if is_kraft else BROKER_PROTOCOL
    found = Release(name).served(protocol).apis
    missing = {api.name for key, api in protocol.apis.items() if found.get(key) != api}
    extensions = {apis.APIS[key].name for key in apis.EXTENSIONS}
    assert missing <= (set() if is_kraft else extensions)


def test_what_an_old_release_lacks_is_not_there() -> None:
    """KIP-516 in Fetch came with 3.1, KIP-848 and KIP-932 with 4.0 and 4.1; KIP-896 took the oldest away."""
    old = Release("2.8").served(BROKER_PROTOCOL).apis
    assert (old[apis.FETCH].first, old[apis.FETCH].last) == (0, 12)
    assert old[apis.API_VERSIONS].last == 3
    assert apis.CONSUMER_GROUP_HEARTBEAT not in old
    newer = Release("4.0").served(KRAFT_BROKER_PROTOCOL).apis
    assert (newer[apis.FETCH].first, newer[apis.FETCH].last) == (4, 17)
    assert apis.CONSUMER_GROUP_HEARTBEAT in newer
    assert apis.SHARE_GROUP_HEARTBEAT not in newer
    assert apis.SHARE_GROUP_HEARTBEAT in Release("4.1").served(KRAFT_BROKER_PROTOCOL).apis


def test_features_end_with_the_release() -> None:
    """Feature.PRODUCTION_FEATURES and MetadataVersion.LATEST_PRODUCTION of 4.0.1 and 4.1.2."""
    of_4_0 = Release("4.0").supported(SUPPORTED)
    assert of_4_0["metadata.version"] == (25, 25)
    assert "share.version" not in of_4_0
    of_4_1 = Release("4.1").supported(SUPPORTED)
    assert of_4_1["metadata.version"] == (25, 27)
    assert of_4_1["share.version"] == (0, 1)


def test_the_mode_follows_from_the_release() -> None:
    assert release_of("", is_kraft=True) is None
    assert release_of("3.4", is_kraft=False) == Release("3.4")
    for name, is_kraft in (("3.4", True), ("4.1", False)):
        with pytest.raises(TidegaugeError, match="mode") as refused:
            release_of(name, is_kraft=is_kraft)
        assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_the_option_names_brokers_and_releases() -> None:
    found = as_kafka(["4.1", "2:4.0"])
    assert found.settings == {"tidegauge.as.kafka": "4.1", "2:tidegauge.as.kafka": "4.0"}
    assert (found.is_kraft, found.lowest) == (True, "4.0"), "a new cluster has the features of the lowest release"
    assert as_kafka([]) == ({}, False, None)


@pytest.mark.parametrize("texts", [["5.0"], ["x:4.0"], [":4.0"], ["3.9", "4.0"], [""], ["4.0:1"]])
def test_an_option_without_sense_is_refused(texts: list[str]) -> None:
    with pytest.raises(TidegaugeError) as refused:
        as_kafka(texts)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert list(VERSIONS) == sorted(VERSIONS, key=lambda name: tuple(map(int, name.split("."))))
