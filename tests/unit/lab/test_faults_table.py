"""Calls that a fault applies to (server/lab/fault_table.py): ends, directions, counts, chances, refusals."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.apis import FORMER_RPCS, api_of
from tidegauge.kafka.apis import APIS
from tidegauge.v1 import common_pb2, lab_pb2
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab import fault_table
from tidegauge_broker.server.lab.fault_table import CLIENT, IN, OUT, ZOOKEEPER, FaultTable, broker
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import GatedRequest
from tidegauge_broker.server.wire.grpc import injected_responses

BOTH = lab_pb2.LAB_DIRECTION_BOTH
BROKERS = lab_pb2.LAB_PLANE_BROKERS


def asked(api: str) -> GatedRequest:
    return GatedRequest(api, Caller("c", "PLAINTEXT"))


def table(broker_id=1):
    return FaultTable(broker_id, DiskFaults(sleep=lambda _: None))


def network(plane=BROKERS, direction=BOTH, ids=(), **effect):
    return lab_pb2.LabFault(
        network=lab_pb2.NetworkFault(
            plane=plane, direction=direction, broker_ids=ids, **(effect or {"partitioned": True})
        )
    )


def error(rpc="Produce", **more):
    more.setdefault("error", common_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS)
    return lab_pb2.LabFault(error=lab_pb2.ErrorFault(rpc=rpc, **more))


def hold(rpc="Produce", **more):
    return lab_pb2.LabFault(hold=lab_pb2.HoldFault(rpc=rpc, **more))


def cut_of(faults):
    """Every pair of direction and end, of those that there are, that is partitioned."""
    ends = {"0": broker(0), "1": broker(1), "2": broker(2), "clients": CLIENT, "zookeeper": ZOOKEEPER}
    ways = {"in": IN, "out": OUT}
    return {
        f"{way} {name}"
        for way, number in ways.items()
        for name, end in ends.items()
        if faults.network(number, end).refused_by is not None
    }


@pytest.mark.parametrize(
    ("fault", "cut"),
    [
        (network(), {"in 0", "out 0", "in 2", "out 2"}),
        (network(direction=IN), {"in 0", "in 2"}),
        (network(direction=OUT), {"out 0", "out 2"}),
        (network(ids=[2]), {"in 2", "out 2"}),
        (network(ids=[2], direction=OUT), {"out 2"}),
        (network(lab_pb2.LAB_PLANE_CLIENTS), {"in clients"}),
        (network(lab_pb2.LAB_PLANE_ZOOKEEPER), {"in zookeeper", "out zookeeper"}),
        (network(lab_pb2.LAB_PLANE_ZOOKEEPER, IN), {"in zookeeper"}),
        (network(direction=lab_pb2.LAB_DIRECTION_UNSPECIFIED), {"in 0", "out 0", "in 2", "out 2"}),
    ],
)
def test_a_partition_applies_to_its_plane_its_brokers_and_its_direction_and_never_to_the_broker_itself(fault, cut):
    faults = table()
    faults.set(fault)
    assert cut_of(faults) == cut


def test_a_broker_of_unknown_id_is_among_all_brokers_but_not_among_named_ones():
    faults = table()
    faults.set(network(ids=[2]))
    assert faults.network(IN, broker(-1)).refused_by is None
    faults.set(network())
    assert faults.network(IN, broker(-1)).refused_by is not None


def test_what_was_partitioned_passes_again_when_the_fault_ends_and_other_kinds_of_faults_stay():
    faults = table()
    first = faults.set(network(ids=[0]))
    faults.set(network(ids=[2]))
    faults.set(error())
    assert [fault.fault_id for fault in faults.clear([first.fault_id])] == [first.fault_id]
    assert cut_of(faults) == {"in 2", "out 2"}
    assert [fault.WhichOneof("kind") for fault in faults.clear(network_only=True)] == ["network"]
    assert cut_of(faults) == set()
    assert [fault.WhichOneof("kind") for fault in faults.listed()] == ["error"]
    assert not faults.is_empty
    faults.clear()
    assert faults.is_empty


def test_the_same_ends_and_direction_replace_each_other_and_another_effect_does_not():
    faults = table()
    faults.set(network(delay_ms=10))
    faults.set(network(delay_ms=20))
    faults.set(network(ids=[2], delay_ms=5))
    assert faults.network(IN, broker(0)).delay_ms == 20
    assert faults.network(IN, broker(2)).delay_ms == 25, "delays of several faults add up"
    faults.set(network())
    assert len(faults.listed()) == 3


def test_asking_whether_a_call_is_partitioned_draws_no_chance_and_counts_nothing():
    faults = table()
    faults.set(network(drop_probability=1.0))
    assert faults.network(IN, broker(0), count=False) == fault_table.PASSES
    assert faults.listed()[0].met == 0
    assert faults.network(IN, broker(0)).refused_by is not None
    assert faults.listed()[0].met == 1


@given(st.integers(0, 2**32), st.floats(0.05, 0.95))
@settings(max_examples=50)
def test_the_same_seed_has_the_same_luck(seed, probability):
    def lots():
        faults = table()
        faults.set(network(drop_probability=probability, seed=seed))
        return [faults.network(IN, broker(0)).refused_by is not None for _ in range(40)]

    assert lots() == lots()


def test_a_probability_is_about_kept():
    faults = table()
    faults.set(network(drop_probability=0.3, seed=7))
    lost = sum(faults.network(IN, broker(0)).refused_by is not None for _ in range(2000))
    assert 500 < lost < 700


@pytest.mark.parametrize(
    ("more", "failing"),
    [
        ({"times": 1}, [0]),
        ({"skip": 2, "times": 1}, [2]),
        ({"skip": 1, "times": 3}, [1, 2, 3]),
        ({"times": 0}, list(range(8))),
        ({"skip": 6}, [6, 7]),
    ],
)
def test_errors_meet_the_nth_call_and_so_many_after_it(more, failing):
    faults = table()
    faults.set(error(**more))
    assert [number for number in range(8) if faults.error(asked("Produce")) is not None] == failing
    assert faults.listed()[0].met == len(failing)


def test_only_calls_of_its_api_count_and_a_produce_on_a_stream_is_a_produce():
    faults = table()
    faults.set(error("ProduceStream", skip=1, times=1))
    assert faults.error(asked("Fetch")) is None
    assert faults.error(asked("Produce")) is None, "the first passes"
    assert faults.error(asked(api_of("ProduceStream"))) is not None


@pytest.mark.parametrize("name", sorted({api.name for api in APIS.values()} | injected_responses.METHODS.keys()))
def test_every_api_of_kafkas_table_and_every_rpc_can_be_faulted_and_held_by_its_name(name):
    """A fault names the API, whichever wire carries the request; the RPC's own name means the same API."""
    faults = table()
    faults.set(error(name, error=0, grpc_status="UNAVAILABLE"))
    faults.set(hold(name))
    assert faults.error(asked(api_of(name))) is not None
    assert faults.hold(asked(api_of(name)), after_effect=False) is not None
    assert faults.hold(asked(api_of(name)), after_effect=True) is None
    assert faults.error(asked("DescribeCluster" if name != "DescribeCluster" else "Fetch")) is None


@pytest.mark.parametrize(
    ("rpc", "api"),
    [
        ("InitTransactions", "InitProducerId"),
        ("AddPartitions", "AddPartitionsToTxn"),
        ("AddOffsets", "AddOffsetsToTxn"),
        ("CommitOffsetsInTransaction", "TxnOffsetCommit"),
        ("EndTransaction", "EndTxn"),
        ("WriteMarkers", "WriteTxnMarkers"),
    ],
)
def test_names_of_rpcs_about_transactions_mean_kafkas_apis(rpc, api):
    faults = table()
    faults.set(error(api))
    faults.set(hold(api, after_effect=True))
    assert faults.error(asked(api_of(rpc))) is not None
    assert faults.hold(asked(api_of(rpc)), after_effect=True) is not None


def test_names_of_rpcs_that_are_gone_mean_their_apis_still():
    """Scenario files and rules name them: groups and transactions had services of gRPC."""
    known = {api.name for api in APIS.values()}
    assert not FORMER_RPCS.keys() & injected_responses.METHODS.keys()
    for name in sorted(FORMER_RPCS):
        assert api_of(name) in known
        table().set(error(name))


def test_a_fault_of_a_transactional_id_meets_requests_that_name_a_group_too():
    """TxnOffsetCommit and AddOffsetsToTxn name both."""
    faults = table()
    faults.set(hold("TxnOffsetCommit", group="tx", times=0))
    both = GatedRequest("TxnOffsetCommit", Caller("", ""), (), "group", transactional_id="tx")
    other = GatedRequest("TxnOffsetCommit", Caller("", ""), (), "group", transactional_id="other")
    assert faults.hold(both, after_effect=False) is not None
    assert faults.hold(other, after_effect=False) is None


def test_alter_configs_means_both_apis_that_have_this_name():
    """Kafka's AlterConfigs, and the RPC of that name, which is Kafka's IncrementalAlterConfigs."""
    faults = table()
    faults.set(hold("AlterConfigs"))
    assert faults.hold(asked("AlterConfigs"), after_effect=False) is not None
    assert faults.hold(asked("IncrementalAlterConfigs"), after_effect=False) is not None
    faults.clear()
    faults.set(hold("IncrementalAlterConfigs"))
    assert faults.hold(asked("AlterConfigs"), after_effect=False) is None


def test_holds_meet_the_nth_call_and_so_many_after_it():
    faults = table()
    faults.set(hold(skip=1, times=2))
    assert [faults.hold(asked("Produce"), after_effect=False) is not None for _ in range(5)] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert faults.listed()[0].met == 2


def test_errors_with_a_probability_come_by_the_seed():
    def failing(seed):
        faults = table()
        faults.set(error(probability=0.5, seed=seed))
        return [faults.error(asked("Produce")) is not None for _ in range(64)]

    assert failing(3) == failing(3)
    assert failing(3) != failing(4)
    assert 10 < sum(failing(3)) < 54


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lab_pb2.LabFault(), "names no fault"),
        (network(lab_pb2.LAB_PLANE_UNSPECIFIED), "isolate needs from"),
        (network(lab_pb2.LAB_PLANE_CLIENTS, OUT), "makes no calls to clients"),
        (network(ids=[1, 2]), "can't be isolated from itself"),
        (network(lab_pb2.LAB_PLANE_ZOOKEEPER, ids=[2]), "ids name brokers: give them with the brokers' plane"),
        (network(delay_ms=0), "whole number of 1 ms or more"),
        (network(drop_probability=1.5), "more than 0 and at most 1"),
        (network(lab_pb2.LAB_PLANE_ZOOKEEPER, drop_probability=0.5), "one stream of bytes"),
        (error("Prodce"), "there is no API or RPC 'Prodce'"),
        (hold("Prodce"), "there is no API or RPC 'Prodce'"),
        (hold(partition=1), "a partition is one of a topic"),
        (hold(caller="me"), "the caller is clients, brokers or the id of a broker"),
        (error(error=0), "give error or grpc_status, exactly one"),
        (error(error=0, grpc_status="OK"), "no status OK"),
        (error(error=0, grpc_status="BROKEN"), "no status BROKEN"),
        (error(error=997), "no error with the number 997"),
        (error(probability=2), "probability is more than 0 and at most 1"),
        (error(skip=-1), "nth is a whole number of 1 or more"),
        (error("DescribeReplicas"), "has no place for an error"),
        (lab_pb2.LabFault(disk=lab_pb2.DiskFault(operation="append")), "give delay_ms or errno, exactly one"),
        (lab_pb2.LabFault(disk=lab_pb2.DiskFault(operation="chew", delay_ms=1)), "operation is one of append"),
        (lab_pb2.LabFault(disk=lab_pb2.DiskFault(errno_name="EWRONG")), "no error of the operating system"),
        (lab_pb2.LabFault(disk=lab_pb2.DiskFault(errno_name="errorcode")), "no error of the operating system"),
        (lab_pb2.LabFault(disk=lab_pb2.DiskFault(delay_ms=1, times=-1)), "times is a whole number of 0 or more"),
        (lab_pb2.LabFault(disk=lab_pb2.DiskFault(delay_ms=2**63 - 1)), "at most 86400000 ms"),
        (network(delay_ms=2**63 - 1), "at most 86400000 ms"),
    ],
)
def test_what_could_never_happen_is_refused_in_a_sentence_and_not_put_in_force(fault, words):
    faults = table()
    with pytest.raises(TidegaugeError, match=words) as caught:
        faults.set(fault)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert faults.is_empty


def test_disk_faults_are_put_to_the_disks_and_taken_back():
    disks = DiskFaults(sleep=lambda _: None)
    faults = FaultTable(1, disks)
    faults.set(lab_pb2.LabFault(disk=lab_pb2.DiskFault(operation="sync", errno_name="EIO", times=1)))
    [on_disk] = disks.in_force
    assert (on_disk.operation, on_disk.errno_name, on_disk.times) == ("sync", "EIO", 1)
    on_disk.met = 1
    assert faults.listed()[0].met == 1
    faults.clear()
    assert not disks.in_force


def test_who_listens_hears_of_every_change_and_of_none_where_nothing_changed():
    faults = table()
    heard = []
    faults.listeners.append(lambda: heard.append(len(faults.listed())))
    faults.set(network())
    faults.clear()
    faults.clear()
    assert heard == [1, 0]
