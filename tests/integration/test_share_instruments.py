"""Looking into a share group (KIP-932): ``explain share:G/T-P`` and ``GET /v1/shares``, on real brokers.

Members are requests made by hand (``share_members``), so that each record is where the test has put it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from tests.integration.chromium import Page, chromium
from tests.integration.share_members import ACCEPT, REJECT, RELEASE, Member, Servers
from tests.integration.test_watch import Watching
from tests.steering import steering
from tests.waiting import until_async

from tidegauge.errors import ErrorCode
from tidegauge_client.cli.main import root
from tidegauge_lab.local import control_server, layout, takedown
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.switches import Switches

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
from confluent_kafka import Producer  # noqa: E402 - it may be missing
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402 - likewise

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
LIMIT_SECONDS = 120.0
TOPIC, GROUP, AT = "orders", "some/queue", "share:some/queue/orders-0"


@pytest.fixture(scope="module")
def kraft(tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]) -> Iterator[LocalCluster]:
    """Three brokers and three controllers, with ten records in the one partition of a topic."""
    made = LocalCluster.create(tmp_path_factory.mktemp("share") / "cluster", base_port=next_base_port(), mode="kraft")
    try:
        made.up()
        servers = {"bootstrap.servers": ",".join(made.kafka_bootstrap_servers)}
        client = AdminClient(servers)
        for future in client.create_topics([NewTopic(TOPIC, 1, 3)]).values():
            future.result(LIMIT_SECONDS)
        producer = Producer({**servers, "acks": "all"})
        for number in range(10):
            producer.produce(TOPIC, str(number), partition=0)
            producer.flush(LIMIT_SECONDS)
        yield made
    finally:
        made.down(grace_seconds=0)


@pytest.fixture(scope="module")
def control(kraft: LocalCluster) -> Iterator[Any]:
    """The control server of the cluster."""
    try:
        yield steering.Control(control_server.start(kraft.directory, "127.0.0.1:0"))
    finally:
        takedown.end([layout.control_process(kraft.directory)], grace_seconds=5.0)


async def verb(cluster: LocalCluster, *words: str) -> str:
    """Run a verb, and return what it prints; in a thread, since it has an event loop of its own."""
    done = await asyncio.to_thread(CliRunner().invoke, root, [*words, "--dir", str(cluster.directory)])
    assert done.exit_code == 0, done.output
    return done.output


async def explained(cluster: LocalCluster) -> dict[str, Any]:
    return json.loads(await verb(cluster, "explain", AT, "-o", "json"))


def ranges(view: dict[str, Any]) -> list[tuple[int, int, str, int, str]]:
    """Return a view's records: first offset, last offset, state, count, member."""
    return [
        (one["first_offset"], one["last_offset"], one["state"], one["delivery_count"], one.get("member_id", ""))
        for one in view["records"]
    ]


def test_each_record_of_a_share_partition_is_where_explain_says(kraft: LocalCluster, control: Any) -> None:
    """Records in flight at the leader, durable state at the share coordinator, and writes between the two."""

    async def story() -> None:
        servers = Servers(kraft.kafka_bootstrap_servers)
        led = await servers.leader(TOPIC)
        before = await explained(kraft)
        assert (before["leader"], before["in_flight"], before["durable"]) == (led.broker_id, None, None)
        await servers.begin_group(GROUP, TOPIC)
        begun = await explained(kraft)
        assert begun["in_flight"] is None, "nothing was loaded by looking"
        assert begun["durable"]["start_offset"] == 0
        first, second = Member(led, GROUP, "m-1"), Member(led, GROUP, "m-2")
        assert await first.fetch(max_records=6, exact=True) == [(0, 5, 1)]
        assert await second.fetch(max_records=2, exact=True) == [(6, 7, 1)]
        assert await first.acknowledge(1, 3, ACCEPT, RELEASE, REJECT) is ErrorCode.NONE
        found = await explained(kraft)
        assert ranges(found["in_flight"]) == [
            (0, 0, "acquired", 1, "m-1"),
            (1, 1, "acknowledged", 1, ""),
            (2, 2, "available", 1, ""),
            (3, 3, "archived", 1, ""),
            (4, 5, "acquired", 1, "m-1"),
            (6, 7, "acquired", 1, "m-2"),
        ]
        assert ranges(found["durable"]) == [
            (1, 1, "acknowledged", 1, ""),
            (2, 2, "available", 1, ""),
            (3, 3, "archived", 1, ""),
        ], "acquisitions are in the leader's memory alone"
        window = found["in_flight"]
        assert (window["start_offset"], window["end_offset"], window["high_watermark"]) == (0, 8, 10)
        assert all(0 < one["lock_left_ms"] <= 30_000 for one in window["records"] if one["state"] == "acquired")
        assert found["durable"]["leader_epoch"] == found["leader_epoch"] == window["leader_epoch"]
        over_http = await asyncio.to_thread(control.ask, "GET", f"/v1/shares/{quote(GROUP)}/{TOPIC}/0")
        assert (ranges(over_http["in_flight"]), over_http["durable"]) == (ranges(window), found["durable"])
        with pytest.raises(steering.Refused) as refused:
            await asyncio.to_thread(control.ask, "GET", f"/v1/shares/{quote(GROUP)}/{TOPIC}/7")
        assert refused.value.status == 404
        text = " ".join((await verb(kraft, "explain", AT)).split())
        for words in ("m-1 has acquired 0 (delivered once), 4 to 5", "keeps the start offset 0", "2 offsets from 8 to"):
            assert words in text, text
        await with_a_write_that_is_held(first)
        first.close()
        second.close()

    async def with_a_write_that_is_held(member: Member) -> None:
        for broker in (0, 1, 2):
            await verb(kraft, "hold-requests", str(broker), "--rpc", "WriteShareGroupState", "--group", GROUP)
        waiting = asyncio.create_task(member.acknowledge(0, 0, ACCEPT))
        try:
            async with Switches.of_cluster(kraft.file) as switches:

                async def is_held() -> bool:
                    return sum([await switches.wait_held(one, 0) for one in (0, 1, 2)]) == 1

                await until_async(is_held, LIMIT_SECONDS, "the write is held")
            view = (await explained(kraft))["in_flight"]
            assert ranges(view)[0] == (0, 0, "acknowledged", 1, "m-1")
            assert (view["records"][0]["is_being_written"], view["unwritten_count"]) == (True, 1)
            assert view["start_offset"] == 0, "it does not count yet"
        finally:
            for broker in (0, 1, 2):
                await verb(kraft, "release-requests", str(broker))
        assert await waiting is ErrorCode.NONE
        assert (await explained(kraft))["in_flight"]["start_offset"] == 2
        text = " ".join((await verb(kraft, "explain", f"group:{GROUP}")).split())
        for words in ("The share group has no members", "7 offsets over 1 partition are not done"):
            assert words in text, f"of ten, 0, 1 and 3 are done: {text}"

    asyncio.run(story())


def test_a_share_partition_of_no_partition_is_refused(kraft: LocalCluster) -> None:
    for word, sentence in (("share:q/nothing-0", "does not exist"), ("share:q/orders-9", "has no partition 9")):
        done = CliRunner().invoke(root, ["explain", word, "--dir", str(kraft.directory)])
        assert done.exit_code == 1
        assert sentence in done.output
    for word in ("share:", "share:q", "share:/orders-0"):
        assert CliRunner().invoke(root, ["explain", word, "--dir", str(kraft.directory)]).exit_code == 2


def test_the_page_draws_records_as_boxes_by_their_state(kraft: LocalCluster, tmp_path: Path) -> None:
    """docs/watch.md: who has which record, how often it was delivered, and finished records."""
    group = "drawn"

    async def story(page: Page) -> None:
        servers = Servers(kraft.kafka_bootstrap_servers)
        led = await servers.leader(TOPIC)
        await servers.begin_group(group, TOPIC)
        first, second = Member(led, group, "m-1"), Member(led, group, "m-2")
        assert await first.fetch(max_records=5, exact=True) == [(0, 4, 1)]
        assert await first.acknowledge(1, 3, ACCEPT, RELEASE, REJECT) is ErrorCode.NONE
        assert await second.fetch(max_records=1, exact=True) == [(2, 2, 2)]
        boxes = "[...document.querySelectorAll('.share-card')].filter((one) => one.innerText.startsWith('drawn/'))"
        boxes += ".flatMap((card) => [...card.querySelectorAll('.record')].map((box) => box.title))"
        shown = [
            "offset 0: acquired by m-1, delivered 1 of at most 5 times",
            "offset 1: acknowledged, delivered 1 of at most 5 times",
            "offset 2: acquired by m-2, delivered 2 of at most 5 times",
            "offset 3: archived, delivered 1 of at most 5 times",
            "offset 4: acquired by m-1, delivered 1 of at most 5 times",
        ]
        await asyncio.to_thread(
            page.until, f"JSON.stringify({boxes}) === {json.dumps(json.dumps(shown, separators=(',', ':')))}"
        )
        first.close()
        second.close()

    with chromium(tmp_path / "chromium") as page:
        watching = Watching.begin(kraft)
        try:
            page.open(watching.url)
            asyncio.run(story(page))
        finally:
            watching.end()
