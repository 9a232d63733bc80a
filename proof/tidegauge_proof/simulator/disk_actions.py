"""Actions on the disks of simulated brokers, as in ``actions``: early writes, losses of power, faults."""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.partition import TopicPartition
from tidegauge_proof.simulator.action import brokers_up, victim
from tidegauge_proof.simulator.acts import Act, act
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.stored_replica import StoredReplica
from tidegauge_proof.simulator.swarm import Swarm
from tidegauge_proof.simulator.world import World

_TORN_BYTES = 160
"""Up to so many bytes may be left of a batch that a power loss took; small batches have less."""


def write_checkpoint(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Let a broker write its high watermark."""
    del swarm
    return _let_one(world, dice, "write_checkpoint", MemoryBroker.write_checkpoint)


def flush(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Flush a broker's log to the disk."""
    del swarm
    return _let_one(world, dice, "flush", MemoryBroker.flush)


def _let_one(world: World, dice: Dice, name: str, write: Callable[[MemoryBroker], None]) -> Act | None:
    """Have one of the brokers that are up write what it has in memory."""
    up = brokers_up(world)
    if not up:
        return None
    broker_id = dice.choose(up)
    write(world.brokers[broker_id])
    return act(name, broker=broker_id)


def cut_power(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """End a machine's power supply, which loses records that were never flushed.

    By the swarm's ``power`` these are any ("any"), uncommitted ones ("uncommitted"), the uncommitted ones that the
    broker has not reported as a follower ("unreported"), for a reported one may be committed any moment; or the ones
    that it has not given away as a leader either ("unseen").
    """
    running = [b for b, broker in world.brokers.items() if broker.is_running]
    if not running or swarm.power == "none":
        return None
    broker_id = victim(world, dice, running)
    keep: dict[TopicPartition, int] = {}
    ends: list[int] = []
    torn = 0
    for partition in world.partitions:
        replica = partition.brokers[broker_id]
        end = replica.log.log_end_offset
        least = min(end, _least_kept(replica, len(partition.checker.committed), swarm.power))
        kept = keep[partition.at] = replica.log.whole_batches_below(end - dice.below(end - least + 1))
        ends.append(end)
        if kept < end:
            torn = dice.below(_TORN_BYTES)
    world.cut_power(broker_id, keep, torn)
    return act("cut_power", broker=broker_id, keep=[*keep.values()], end=ends, torn=torn)


def _least_kept(replica: StoredReplica, committed: int, power: str) -> int:
    """Below which offset a power loss of this kind takes nothing."""
    least = replica.flushed
    if power != "any":
        least = max(least, committed)
    if power in {"unseen", "unreported"}:
        least = max(least, replica.reported)
    if power == "unseen":
        least = max(least, replica.given)
    return least


def fail_directory(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Fail a log directory of a broker, perhaps in the middle of a step; never the last healthy one."""
    del swarm
    able = [b for b in brokers_up(world) if not world.brokers[b].failing and not world.brokers[b].failed_directories]
    if not able:
        return None
    broker_id = victim(world, dice, able)
    directory, writes_left = dice.below(world.brokers[broker_id].directories), dice.below(4)
    world.fail_directory(broker_id, directory, writes_left)
    return act("fail_directory", broker=broker_id, directory=directory, writes_left=writes_left)


def damage_batch(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Damage a batch in the log of a running broker."""
    del swarm
    broker_id = victim(world, dice, [*world.brokers])
    partition = dice.choose(world.partitions)
    replica = partition.brokers[broker_id]
    if replica.damaged is not None or not replica.log.log_end_offset:
        return None
    offset = replica.damaged = replica.log.whole_batches_below(dice.below(replica.log.log_end_offset))
    world.note("fault", broker_id, action="damage-batch")
    return act("damage_batch", broker=broker_id, partition=partition.at.partition, offset=offset)


def raise_defect(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Make one of the next writes to a replica's log raise what no error of the table describes."""
    del swarm
    up = brokers_up(world)
    if not up:
        return None
    broker_id = victim(world, dice, up)
    partition = dice.choose(world.partitions)
    replica = partition.brokers[broker_id]
    if replica.writes_left is not None or replica.is_offline:
        return None
    replica.writes_left = dice.below(3)
    world.note("fault", broker_id, action="defect")
    return act("raise_defect", broker=broker_id, partition=partition.at.partition, writes_left=replica.writes_left)


def mend(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Repair a broker's disks. Offline replicas come back when the broker restarts."""
    del swarm
    faulty = [b for b, broker in world.brokers.items() if broker.has_faults]
    if not faulty:
        return None
    broker_id = dice.choose(faulty)
    world.mend(broker_id)
    return act("mend", broker=broker_id)
