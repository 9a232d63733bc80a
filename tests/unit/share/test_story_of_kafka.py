"""The stories of records that were watched at a broker of Kafka 4.3.1, request by request, with its responses."""

from tests.unit.share.driver import ACCEPT, GAP, LOCK_MS, REJECT, RELEASE, RENEW, Driver, log_of

from tidegauge.errors import ErrorCode
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.settings import AcquireMode

EXACT = AcquireMode.RECORD_LIMIT


def test_forty_records_from_acquisition_to_the_close_of_a_session():
    """Four batches of ten records, a lock of 5 s and five deliveries: all that the leader has Kafka write."""
    share = Driver(log_of(10, 10, 10, 10))
    assert share.fetch(max_records=15, batch_size=10) == [(0, 9, 1), (10, 19, 1)]
    assert share.writes == []
    assert share.acknowledge(0, 9, ACCEPT) is ErrorCode.NONE
    assert share.last_write == (0, 10, [(0, 9, 2, 1)])
    share.now_ms += 1
    assert share.fetch(max_records=15, batch_size=10) == [(20, 29, 1), (30, 39, 1)]
    assert share.acknowledge(10, 14, ACCEPT, ACCEPT, GAP, RELEASE, REJECT) is ErrorCode.NONE
    assert share.last_write == (
        10,
        4,
        [(10, 10, 2, 1), (11, 11, 2, 1), (12, 12, 4, 1), (13, 13, 0, 1), (14, 14, 4, 1)],
    )
    assert share.acknowledge(10, 14, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    assert share.acknowledge(30, 35, ACCEPT) is ErrorCode.NONE
    assert share.last_write[:2] == (13, 7)
    assert share.acknowledge(100, 110, ACCEPT) is ErrorCode.INVALID_REQUEST
    assert share.acknowledge(15, 16, 9) is ErrorCode.INVALID_REQUEST
    share.now_ms += 1
    assert share.acknowledge(15, 16, RENEW) is ErrorCode.NONE
    share.now_ms += 1
    assert share.fetch("b", max_records=3, batch_size=3, mode=EXACT) == [(13, 13, 2)]
    assert share.acknowledge(16, 16, ACCEPT, member="b") is ErrorCode.INVALID_RECORD_STATE
    assert share.responses[max(share.responses)][1] == "Member is not the owner of offset"
    assert share.acknowledge(13, 13, RELEASE, member="b") is ErrorCode.NONE
    assert share.last_write == (13, 7, [(13, 13, 0, 2)])
    assert share.fetch("b", max_records=5, batch_size=5, mode=EXACT) == [(13, 13, 3)]

    before = len(share.writes)
    share.pass_ms(LOCK_MS)
    assert [write.batches[0][:2] for write in share.writes[before:]] == [
        *((offset, offset) for offset in (17, 18, 19)),
        (20, 29),
        *((offset, offset) for offset in (36, 37, 38, 39)),
        *((offset, offset) for offset in (15, 16, 13)),
    ]
    assert all(len(write.batches) == 1 for write in share.writes[before:])
    assert share.acknowledge(15, 15, ACCEPT) is ErrorCode.INVALID_RECORD_STATE

    assert share.fetch(max_records=100, batch_size=10) == [(13, 13, 4), (15, 18, 2)]
    assert share.acknowledge(13, 39, RELEASE) is ErrorCode.INVALID_RECORD_STATE
    assert share.fetch(max_records=100, batch_size=10) == [(19, 19, 2), (20, 29, 2), (36, 39, 2)]
    assert share.acknowledge(13, 39, RELEASE) is ErrorCode.INVALID_RECORD_STATE
    assert share.fetch(max_records=100, batch_size=10) == []
    assert share.acknowledge(39, 39, ACCEPT) is ErrorCode.NONE
    assert share.last_write[2] == [(39, 39, 2, 2)]
    share.release()
    released = {offset: state for offset, state in share.states().items() if state[0] == 0}
    assert released == {13: (0, 4)} | dict.fromkeys((*range(15, 30), 36, 37, 38), (0, 2))


def test_one_record_is_delivered_as_often_as_the_limit_allows():
    """A limit of five: the fifth release archives the record, and the next one is delivered."""
    share = Driver(log_of(4))
    for count in range(1, 6):
        assert share.fetch(max_records=1, batch_size=1, mode=EXACT) == [(0, 0, count)]
        share.release()
        assert share.writes[-1].batches[0].state == (4 if count == 5 else 0)
    assert share.last_write == (0, 1, [(0, 0, 4, 5)])
    assert share.fetch(max_records=1, batch_size=1, mode=EXACT) == [(1, 1, 1)]


def test_a_batch_that_fails_again_and_again_is_delivered_in_ever_smaller_parts():
    """A limit of five, eight records: half of them from the fourth delivery on, each alone the last time."""
    share = Driver(log_of(8))
    seen = []
    for _ in range(12):
        acquired = share.fetch(max_records=100, batch_size=100)
        seen += acquired
        assert share.acknowledge(acquired[0][0], acquired[-1][1], RELEASE) is ErrorCode.NONE
    assert seen == [
        (0, 7, 1),
        (0, 7, 2),
        (0, 7, 3),
        (0, 3, 4),
        *((offset, offset, 5) for offset in range(4)),
        (4, 7, 4),
        *((offset, offset, 5) for offset in range(4, 7)),
    ]
    assert share.last_write == (6, 1, [(6, 6, 4, 5)])


def test_records_below_the_log_start_may_be_acknowledged_in_vain():
    """DeleteRecords to 15, with 0 to 9 acquired: acknowledgements below the start are ignored without an error."""
    share = Driver(log_of(10, 10))
    assert share.fetch(max_records=5, batch_size=5) == [(0, 9, 1)]
    share.share.log_start_moved(15)
    assert share.acknowledge(0, 4, RELEASE) is ErrorCode.NONE
    assert share.acknowledge(5, 9, ACCEPT) is ErrorCode.NONE
    assert share.writes == []
    assert share.fetch(max_records=5, batch_size=5) == [(10, 19, 1)]


def test_a_refused_batch_takes_back_the_whole_request():
    """All or nothing for a partition and a request: the first batch of two was right."""
    share = Driver(log_of(10, 10))
    share.fetch(max_records=20, batch_size=10)
    request = [Acknowledgement(0, 9, (ACCEPT,)), Acknowledgement(10, 25, (ACCEPT,))]
    assert share.acknowledge_all(request) is ErrorCode.INVALID_REQUEST
    assert share.writes == []
    assert set(share.states().values()) == {(1, 1)}
    assert share.acknowledge(0, 9, ACCEPT) is ErrorCode.NONE
