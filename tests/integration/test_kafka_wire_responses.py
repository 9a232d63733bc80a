"""Hand-made requests over Kafka's protocol: the responses are those that Apache Kafka 3.9.1 gave when recorded."""

from __future__ import annotations

import pytest
from tests.wire_responses.differences import compare, recorded
from tests.wire_responses.parts import SETTINGS, responses

from tidegauge.settings import BROKER_SETTINGS
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def test_responses_are_those_of_kafka_but_for_what_has_a_reason(make_cluster) -> None:
    """tests/wire_responses has the requests and the reasons; ``make differential`` asks a running Kafka, too."""
    settings = {name: value for name, value in SETTINGS.items() if name in BROKER_SETTINGS}
    cluster: LocalCluster = make_cluster(profile="kafka", settings=settings)
    addresses = [address.rpartition(":") for address in cluster.kafka_bootstrap_servers]
    verdict = compare(recorded(), responses([(host, int(port)) for host, _, port in addresses]))
    assert not verdict.differences, verdict.text()
    assert not verdict.idle, verdict.text()
    # By Kafka's defaults brokers that stop together ask for a controlled shutdown again and again, 5 s apart.
    cluster.down(grace_seconds=0)
