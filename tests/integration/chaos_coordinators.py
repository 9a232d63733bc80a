"""Faults of coordinators, of requests of Kafka's protocol, and of clients that pause; docs/chaos.md lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.integration.chaos import BROKERS, FAULTS, IN, METADATA, Chaos

from tidegauge_lab.local.roles import GROUP, TRANSACTION, CoordinatedKind
from tidegauge_lab.switches import Plane, Switches

OF_MEMBERS = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "OffsetFetch")
OF_TRANSACTIONS = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
OF_RECORDS = ("Produce", "Fetch")
MARKERS = ("WriteTxnMarkers",)
METADATA_NAME = "ZooKeeper" if METADATA is Plane.ZOOKEEPER else "controllers"
TIMES = 3
"""How many requests of each API fail at each broker."""


def fail(chaos: Chaos, apis: Sequence[str], error: str = "", *, after_effect: bool = False) -> None:
    """Have requests of each API get an error at every broker, or have their connection closed."""
    injected = {"error": error} if error else {"grpc_status": "UNAVAILABLE"}

    async def begin(switches: Switches, broker: int) -> None:
        for api in apis:
            await switches.inject_error(broker, api, **injected, after_effect=after_effect, times=TIMES)

    chaos.switched_for_a_while(BROKERS, begin)


LATE_COMMITS = "commits of members come late"


def come_late(chaos: Chaos, apis: Sequence[str]) -> None:
    """Hold one request of each API at every broker, close all clients' connections, and let the requests go on later.

    The clients send them again meanwhile, so each takes effect after its repeat.
    """

    async def hold(switches: Switches) -> None:
        for broker in BROKERS:
            for api in apis:
                await switches.hold_requests(broker, api, outlives_connection=True, caller="clients", times=1)

    async def cut(switches: Switches, broker: int) -> None:
        await switches.isolate(broker, Plane.CLIENTS, IN)

    async def heal(switches: Switches) -> None:
        for broker in BROKERS:
            await switches.heal(broker)

    async def release(switches: Switches) -> None:
        for broker in BROKERS:
            await switches.release_requests(broker)

    async def cut_all(switches: Switches) -> None:
        for broker in BROKERS:
            await cut(switches, broker)

    chaos.switched(hold)
    chaos.for_a_while()
    chaos.switched(cut_all)
    chaos.switched(heal)
    chaos.for_a_while()
    chaos.switched(release)


def of_a_coordinator(kind: CoordinatedKind, words: str) -> dict[str, Callable[[Chaos], None]]:
    """Return the faults of the broker that coordinates a kind."""
    return {
        f"kill {words}": lambda chaos: chaos.kill(chaos.coordinator(kind)),
        f"stop {words}": lambda chaos: chaos.stop(chaos.coordinator(kind)),
        f"pause {words}": lambda chaos: chaos.pause(chaos.coordinator(kind)),
        f"power cut of {words}": lambda chaos: chaos.kill(chaos.coordinator(kind), power_cut=True),
        f"cut {words} from brokers": lambda chaos: chaos.cut(chaos.coordinator(kind), Plane.BROKERS),
        f"cut {words} from clients": lambda chaos: chaos.cut(chaos.coordinator(kind), Plane.CLIENTS, IN),
        f"cut {words} from {METADATA_NAME}": lambda chaos: chaos.cut(chaos.coordinator(kind), METADATA),
        f"appends of {words} are slow": lambda chaos: chaos.slow_disk(chaos.coordinator(kind), "append"),
    }


KAFKA_FAULTS: dict[str, Callable[[Chaos], None]] = {
    **of_a_coordinator(GROUP, "the group's coordinator"),
    **of_a_coordinator(TRANSACTION, "the transaction's coordinator"),
    "pause a client": lambda chaos: chaos.pause_client(),
    "requests of members break": lambda chaos: fail(chaos, OF_MEMBERS),
    "responses to members get lost": lambda chaos: fail(chaos, OF_MEMBERS, after_effect=True),
    "members are sent to another coordinator": lambda chaos: fail(chaos, OF_MEMBERS, "NOT_COORDINATOR"),
    "requests of transactions break": lambda chaos: fail(chaos, OF_TRANSACTIONS),
    "responses to transactions get lost": lambda chaos: fail(chaos, OF_TRANSACTIONS, after_effect=True),
    "transactions wait for their coordinator": lambda chaos: fail(
        chaos, OF_TRANSACTIONS, "COORDINATOR_LOAD_IN_PROGRESS"
    ),
    "markers fail": lambda chaos: fail(chaos, MARKERS),
    "responses to markers get lost": lambda chaos: fail(chaos, MARKERS, after_effect=True),
    "requests of records break": lambda chaos: fail(chaos, OF_RECORDS),
    "responses to records get lost": lambda chaos: fail(chaos, OF_RECORDS, after_effect=True),
    "requests of records come late": lambda chaos: come_late(chaos, ("Produce",)),
    "requests of transactions come late": lambda chaos: come_late(chaos, OF_TRANSACTIONS),
    LATE_COMMITS: lambda chaos: come_late(chaos, ("OffsetCommit",)),
}
ALL_FAULTS = FAULTS | KAFKA_FAULTS
"""For a cluster on which Kafka clients are at work."""
