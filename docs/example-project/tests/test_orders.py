"""Orders survive failures of brokers."""

import asyncio

import pytest
from orders import NotConfirmed, OrderBook, taken


@pytest.mark.tidegauge_topic(partitions=2)
async def test_no_confirmed_order_is_lost_when_a_leader_dies(tidegauge_cluster, tidegauge_topic):
    cluster = tidegauge_cluster.aio
    confirmed = []

    async with OrderBook(cluster.bootstrap_servers, tidegauge_topic) as book:

        async def customer(name):
            for number in range(20):
                order = f"{name}-{number}"
                await book.place(order)
                confirmed.append(order)

        customers = [asyncio.create_task(customer(name)) for name in ("ann", "bob", "eve")]
        dead = await cluster.kill_leader(tidegauge_topic)
        assert await cluster.wait_leader(tidegauge_topic, other_than=dead) != dead
        await asyncio.gather(*customers)

    orders = await taken(cluster.bootstrap_servers, tidegauge_topic)
    assert sorted(orders) == sorted(confirmed)
    assert set(orders.values()) == {1}, "and none is there twice"


async def test_an_order_without_confirmation_is_reported_so(tidegauge_cluster, tidegauge_topic):
    cluster = tidegauge_cluster.aio
    leader = await cluster.leader_of(tidegauge_topic)
    others = [broker for broker in tidegauge_cluster.brokers if broker != leader]

    async with OrderBook(cluster.bootstrap_servers, tidegauge_topic, patience_ms=1_500) as book:
        await cluster.pause(*others)
        with pytest.raises(NotConfirmed, match="ann-1"):
            await book.place("ann-1")
        await cluster.resume(*others)
        await cluster.wait_in_sync(tidegauge_topic)

    async with OrderBook(cluster.bootstrap_servers, tidegauge_topic) as book:
        await book.place("ann-2")
    orders = await taken(cluster.bootstrap_servers, tidegauge_topic)
    assert orders["ann-2"] == 1
    assert orders["ann-1"] <= 1, "it may have been taken all the same, but not twice"


def test_a_cluster_can_be_looked_at_without_asyncio(tidegauge_cluster, tidegauge_topic):
    tidegauge_cluster.wait_in_sync(tidegauge_topic)
    assert len(tidegauge_cluster.isr_of(tidegauge_topic)) == 3
    assert tidegauge_cluster.describe(tidegauge_topic).min_isr == 2, "as pyproject.toml says"
