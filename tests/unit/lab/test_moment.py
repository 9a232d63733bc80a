"""The cluster at a moment of the past, from events alone: timeline/moment.py, timeline/patches.py, watch/history.py."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegauge_lab.timeline.moment import ClusterMoment
from tidegauge_lab.timeline.patches import changes, patched
from tidegauge_lab.watch.history import History, history_of, mark_of

JSON = st.recursive(
    st.none() | st.integers(0, 3) | st.lists(st.integers(0, 2), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


def event(source: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"source": source, "kind": kind, "time_ms": fields.pop("time_ms", 1_000), **fields}


def of_orders(source: str, kind: str, **fields: Any) -> dict[str, Any]:
    return event(source, kind, topic="orders", partition=0, **fields)


def lab(action: str, broker: int | None, process: str = "") -> dict[str, Any]:
    return event("lab", "fault", action=action, broker=broker, process=process or f"broker-{broker}")


def role(broker: int, kind: str, leader: int, epoch: int, log_end: int = 0, **fields: Any) -> dict[str, Any]:
    log = {"log_start_offset": 0, "high_watermark": log_end, "last_stable_offset": log_end, "log_end_offset": log_end}
    more = {"replicas": [1, 2], "epochs": [[0, 0]], **log, **fields}
    return of_orders(f"broker-{broker}", "role", role=kind, leader=leader, leader_epoch=epoch, **more)


def elects(leader: int, epoch: int, isr: list[int], strategy: str = "offline", cause: str = "BrokerFailure") -> Any:
    names = {"strategy": strategy, "leader": leader, "leader_epoch": epoch, "isr": isr, "cause": cause}
    return of_orders("broker-1", "election", **names)


HEALTHY = [
    event("broker-1", "broker", state="starting", broker_epoch=-1),
    event("broker-2", "broker", state="starting", broker_epoch=-1),
    event("broker-1", "controller", state="elected", controller_epoch=1),
    elects(2, 0, [2, 1], "initial", "TopicCreation"),
    role(2, "leader", 2, 0),
    role(1, "follower", 2, 0),
    of_orders("broker-2", "log_end_offset", old=0, new=20),
    of_orders("broker-1", "log_end_offset", old=0, new=20),
    of_orders("broker-2", "high_watermark", old=0, new=20),
]


def view_after(*events: dict[str, Any]) -> dict[str, Any]:
    moment = ClusterMoment()
    for one in events:
        moment.apply(one)
    return moment.view()


def orders(view: dict[str, Any]) -> dict[str, Any]:
    return view["partitions"]["orders-0"]


def test_a_healthy_partition():
    view = view_after(*HEALTHY)
    at = orders(view)
    assert (at["leader"], at["leaderEpoch"], at["isr"], at["osr"], at["high"]) == (2, 0, [2, 1], [], 20)
    leader, follower = at["replicas"]["2"], at["replicas"]["1"]
    assert (leader["role"], leader["lso"], leader["hw"], leader["leo"]) == ("leader", 20, 20, 20)
    assert (follower["hw"], follower["leo"]) == (0, 20), "a follower learns of the HW a fetch round later"
    assert (view["controller"], view["controllerEpoch"]) == (1, 1)
    assert [view["brokers"]["2"][name] for name in ("state", "leads", "replicas")] == ["up", 1, 1]
    assert view["brokers"]["1"]["controller"]


def test_a_killed_leader_leads_until_another_is_elected():
    killed = [*HEALTHY, lab("kill", 2)]
    view = view_after(*killed)
    assert view["brokers"]["2"]["state"] == "down"
    assert (orders(view)["leader"], orders(view)["isr"]) == (2, [2, 1])
    assert orders(view)["replicas"]["2"]["old"]
    assert orders(view)["replicas"]["2"]["leo"] == 20, "as it was told last"
    at = orders(view_after(*killed, elects(1, 1, [1])))
    assert (at["leader"], at["leaderEpoch"], at["isr"], at["osr"]) == (1, 1, [1], [2])
    none = orders(view_after(*killed, elects(-1, 1, [2])))
    assert (none["leader"], none["leaderKnown"]) == (None, True)


def test_a_restarted_broker_is_old_until_it_takes_a_role():
    started = [*HEALTHY, lab("kill", 2), event("broker-2", "broker", state="starting", broker_epoch=-1)]
    view = view_after(*started)
    assert view["brokers"]["2"]["state"] == "up"
    assert orders(view)["replicas"]["2"]["old"]
    at = orders(view_after(*started, role(2, "follower", 1, 1, 15)))
    assert (at["replicas"]["2"]["old"], at["replicas"]["2"]["leo"]) == (False, 15)


def test_a_paused_broker_is_as_before_when_it_resumes():
    paused = [*HEALTHY, lab("pause", 2)]
    assert view_after(*paused)["brokers"]["2"]["state"] == "paused"
    assert orders(view_after(*paused))["replicas"]["2"]["old"]
    assert view_after(*paused, lab("resume", 2)) == view_after(*HEALTHY)


def test_what_no_event_tells_is_unknown():
    """A log that begins in the middle, by a broker whose roles say nothing of the log."""
    bare = of_orders("broker-2", "role", role="leader", leader=2, leader_epoch=4)
    at = orders(view_after(bare))
    assert (at["isr"], at["osr"], at["replicas"]["2"]["isr"]) == (None, [], None)
    assert [at["replicas"]["2"].get(name) for name in ("logStart", "hw", "lso", "leo")] == [None] * 4
    first = orders(view_after(of_orders("broker-2", "log_end_offset", old=5, new=6)))
    assert (first["leader"], first["leaderKnown"], first["high"]) == (None, False, 6)
    assert view_after()["zookeeper"]["state"] == "unknown"


def test_no_high_watermark_is_shown_above_the_log_end_offset():
    """Event logs of versions that merged both apart have such lines."""
    late = [*HEALTHY, of_orders("broker-2", "high_watermark", old=20, new=42)]
    assert (orders(view_after(*late))["replicas"]["2"]["hw"], orders(view_after(*late))["replicas"]["2"]["leo"]) == (
        42,
        None,
    )
    later = orders(view_after(*late, of_orders("broker-2", "log_end_offset", old=20, new=42)))
    assert (later["replicas"]["2"]["hw"], later["replicas"]["2"]["leo"]) == (42, 42)


def test_a_transaction_holds_the_last_stable_offset():
    held = of_orders("broker-2", "last_stable_offset", old=12, new=12, high_watermark=20)
    assert orders(view_after(*HEALTHY, held))["replicas"]["2"]["lso"] == 12
    free = of_orders("broker-2", "last_stable_offset", old=12, new=20, high_watermark=20)
    further = of_orders("broker-2", "high_watermark", old=20, new=20)
    assert orders(view_after(*HEALTHY, held, free, further))["replicas"]["2"]["lso"] == 20
    cut = of_orders("broker-2", "truncation", old=20, new=15, log_start_offset=0)
    assert orders(view_after(*HEALTHY, held, cut))["replicas"]["2"]["lso"] is None, "what is left open is not told"


def test_an_isr_of_an_older_partition_epoch_counts_for_nothing():
    def isr(new: list[int], epoch: int, state: str = "committed") -> dict[str, Any]:
        return of_orders("broker-2", "isr", old=[2, 1], new=new, state=state, partition_epoch=epoch)

    assert orders(view_after(*HEALTHY, isr([2], 3)))["isr"] == [2]
    assert orders(view_after(*HEALTHY, isr([2], 3), isr([2, 1], 2)))["isr"] == [2]
    assert orders(view_after(*HEALTHY, isr([2], 3, "pending-shrink")))["isr"] == [2, 1]
    assert orders(view_after(*HEALTHY, elects(1, 3, [1]), elects(2, 1, [2])))["leader"] == 1


def test_a_deleted_topic_is_gone_until_it_is_created_again():
    deleted = [*HEALTHY, elects(2, 1, [2], "remove-from-isr", "TopicDeletion")]
    late = of_orders("broker-2", "high_watermark", old=20, new=21)
    assert view_after(*deleted, late)["partitions"] == {}
    assert view_after(*deleted)["brokers"]["2"]["replicas"] == 0
    again = orders(view_after(*deleted, elects(1, 0, [1, 2], "initial", "TopicCreation")))
    assert (again["leader"], again["leaderEpoch"], again["replicas"]["2"]["role"]) == (1, 0, "unknown")


def test_groups_and_transactions_are_shown_as_far_as_events_tell():
    group = event("broker-1", "group", group="g", old="Empty", new="PreparingRebalance", generation=1, members=2)
    ongoing = event(
        *("broker-2", "transaction"), transactional_id="t", old="Empty", new="Ongoing", producer_id=7,
        producer_epoch=1, coordinator_epoch=0, partitions=["orders-0"], time_ms=5_000,
    )  # fmt: skip
    view = view_after(*HEALTHY, group, ongoing, ongoing | {"time_ms": 9_000, "old": "Ongoing"}, lab("kill", 1))
    assert (view["groups"]["g"]["memberCount"], view["groups"]["g"]["lag"], view["groups"]["g"]["old"]) == (
        2,
        None,
        True,
    )
    shown = view["transactions"]["t"]
    assert (shown["since"], shown["coordinator"], shown["old"]) == (5_000, 2, False)
    assert shown["partitions"] == [{"partition": "orders-0", "first": None}]
    gone = view_after(*HEALTHY, group, group | {"new": "Dead"}, ongoing, ongoing | {"new": "Dead"})
    assert (gone["groups"], gone["transactions"]) == ({}, {})


def share(broker: int, epoch: int, *records: list[Any], state: str = "active") -> dict[str, Any]:
    return of_orders(
        *(f"broker-{broker}", "share"), group="q", state=state, leader_epoch=epoch, start_offset=0, end_offset=2,
        delivery_count_limit=5, unwritten=0, records=list(records), has_more=False, changed=list(records),
    )  # fmt: skip


def test_a_share_partition_is_what_its_leader_has_in_memory():
    """It is lost with the process; a former leader that lives on is shown beside, by its own name."""
    taken = [0, 1, "acquired", 1, "a", False]
    shares = view_after(*HEALTHY, share(2, 0, taken))["shares"]
    assert shares["q/orders-0"]["records"] == [
        {"first": 0, "last": 1, "state": "acquired", "count": 1, "member": "a", "writing": False}
    ]
    assert view_after(*HEALTHY, share(2, 0, taken), lab("kill", 2))["shares"] == {}
    assert view_after(*HEALTHY, share(2, 0, taken), share(2, 0, state="fenced"))["shares"] == {}
    both = view_after(*HEALTHY, share(2, 0, taken), lab("isolate", 2), share(1, 1), share(2, 0, taken))["shares"]
    assert {name: (one["broker"], one["leads"], len(one["records"])) for name, one in both.items()} == {
        "q/orders-0": (1, True, 0),
        "q/orders-0 at broker 2": (2, False, 1),
    }
    ended = view_after(*HEALTHY, share(2, 0, taken), share(1, 1), share(2, 0, state="fenced"))["shares"]
    assert list(ended) == ["q/orders-0"]
    odd = {key: value for key, value in share(2, 0).items() if key != "records"}
    assert view_after(*HEALTHY, odd)["shares"] == {}


def test_faults_and_holds_end_and_do_not_outlive_the_process():
    fault = event("broker-2", "fault", action="isolate", broker=2, process="broker-2", fault=1, text="partitioned")
    hold = of_orders("broker-2", "fault", action="hold-fetch", broker=2, process="broker-2")
    view = view_after(*HEALTHY, fault, hold)
    assert (view["brokers"]["2"]["faults"], view["brokers"]["2"]["held"]) == (["partitioned"], 1)
    assert orders(view)["replicas"]["2"]["held"]
    assert view_after(*HEALTHY, fault, fault | {"action": "clear-fault"}, hold, hold | {"action": "release-fetch"}) == (
        view_after(*HEALTHY)
    )
    fresh = view_after(*HEALTHY, fault, hold, lab("kill", 2), HEALTHY[1])["brokers"]["2"]
    assert (fresh["faults"], fresh["held"]) == ([], 0)
    assert view_after(*HEALTHY, lab("pause", None, "zookeeper"))["zookeeper"]["state"] == "paused"


def test_an_event_of_another_version_changes_nothing():
    whole = view_after(*HEALTHY)
    for one in HEALTHY[2:]:
        for field in one.keys() - {
            "source",
            "kind",
            "time_ms",
            "cause",
            "strategy",
            "replicas",
            "log_end_offset",
            "last_stable_offset",
        }:
            assert view_after(*HEALTHY, {name: value for name, value in one.items() if name != field}) == whole, field
    assert view_after(*HEALTHY, event("broker-1", "news", text="of tomorrow")) == whole


@given(old=OBJECTS, new=OBJECTS)
def test_a_patch_leads_from_one_document_to_the_other(old: dict[str, Any], new: dict[str, Any]):
    patch = list(changes(old, new, ()))
    before = repr(old)
    assert patched(old, patch) == new
    assert repr(old) == before
    assert (old == new) == (not patch)


def test_marks_are_for_new_leaders_controllers_faults_and_truncations():
    marked = [elects(1, 1, [1]), lab("kill", 2), of_orders("broker-1", "truncation", old=3, new=1), HEALTHY[2]]
    assert [mark_of(one) for one in marked] == ["election", "fault", "truncation", "election"]
    plain = [HEALTHY[3], elects(2, 2, [2], "remove-from-isr"), elects(-1, 2, [2], "x", "TopicDeletion"), HEALTHY[6]]
    assert [mark_of(one) for one in plain] == [""] * 4


def test_only_kills_and_faults_are_marked_as_faults_not_what_repairs_or_steps():
    """The page's legend says "kill or fault"; a start, a step or a release is neither."""
    repairs = ["start", "resume", "release-fetch", "step-fetch", "sync", "clear-fault"]
    assert [mark_of(lab(one, 1)) for one in repairs] == [""] * 6
    harm = ["kill", "stop", "pause", "power-cut", "hold-fetch", "isolate", "inject-disk", "expire-session"]
    assert [mark_of(lab(one, 1)) for one in harm] == ["fault"] * 8


def test_a_restore_forgets_what_the_data_of_before_held():
    restore = event("lab", "restore", snapshot="s", taken_ms=5)
    view = view_after(*HEALTHY, restore)
    assert (view["partitions"], view["groups"], view["controller"]) == ({}, {}, None)
    assert {broker["state"] for broker in view["brokers"].values()} == {"down"}
    history = History()
    for one in [*HEALTHY, restore]:
        history.add(one)
    assert history.view == view, "the patches lead there as well"


def test_a_history_between_two_times_has_what_was_before_in_its_base():
    events = [one | {"time_ms": 1_000 * number} for number, one in enumerate(HEALTHY)]
    part = history_of(events, since_ms=5_000, until_ms=7_000)
    assert [step["time"] for step in part.steps] == [5_000, 6_000, 7_000]
    assert part.base == view_after(*HEALTHY[:5])
    assert part.view == view_after(*HEALTHY[:8])
    recorded = part.recorded()
    assert [step["number"] for step in recorded.after(7)] == [8]
    assert (recorded.lacks(4), recorded.lacks(5), list(recorded.after(8))) == (True, False, [])
    assert History().recorded().as_json()["steps"] == []


# KRaft mode

QUORUM = [
    event("controller-3000", "quorum", state="Unattached", epoch=0, leader=-1, log_end_offset=0),
    event("controller-3001", "quorum", state="Follower", epoch=1, leader=3000, log_end_offset=0),
    event("controller-3000", "quorum", state="Leader", epoch=1, leader=3000, log_end_offset=0),
    event("controller-3000", "controller", state="elected", controller_epoch=1),
    event("controller-3000", "high_watermark", topic="__cluster_metadata", partition=0, old=0, new=14),
    event("broker-1", "broker", state="starting", broker_epoch=-1),
    event("controller-3000", "fencing", broker=1, state="unfenced"),
]


def shown(view: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = ("id", "state", "role", "epoch", "log_end_offset", "high_watermark")
    return [tuple(one[name] for name in names) for one in view["controllers"]]


def test_the_controllers_of_a_quorum_are_shown_as_they_were():
    view = view_after(*QUORUM)
    assert shown(view) == [(3000, "up", "leader", 1, 14, 14), (3001, "up", "follower", 1, 0, None)]
    assert (view["controller"], view["controllerEpoch"], view["partitions"]) == (3000, 1, {})
    killed = lab("kill", None, "controller-3000")
    voted = [
        event("controller-3001", "quorum", state="Candidate", epoch=2, leader=-1, log_end_offset=14),
        event("controller-3001", "quorum", state="Leader", epoch=2, leader=3001, log_end_offset=14),
        event("controller-3001", "controller", state="elected", controller_epoch=2),
    ]
    view = view_after(*QUORUM, killed, voted[0])
    assert shown(view) == [(3000, "down", None, None, None, None), (3001, "up", "candidate", 2, 14, None)]
    view = view_after(*QUORUM, killed, *voted, lab("pause", None, "controller-3001"))
    assert (shown(view)[1], view["controller"]) == ((3001, "paused", None, None, None, None), 3001)
    assert view_after(*HEALTHY)["controllers"] == [], "ZooKeeper mode"
    assert shown(view_after(event("controller-3000", "quorum", state="Leader"))) == [], "a line of another version"


def test_a_broker_is_fenced_in_the_past_and_its_process_goes_on():
    fenced = event("controller-3000", "fencing", broker=1, state="fenced")
    assert [view_after(*QUORUM, *more)["brokers"]["1"]["fenced"] for more in ([], [fenced])] == [False, True]
    again = event("broker-1", "broker", state="starting", broker_epoch=-1)
    broker = view_after(*QUORUM, fenced, again)["brokers"]["1"]
    assert (broker["state"], broker["fenced"]) == ("up", True), "it has not caught up yet"
    assert not view_after(*QUORUM, fenced, lab("kill", 1))["brokers"]["1"]["fenced"], "it is down, and says so"
    assert view_after(fenced)["brokers"]["1"]["state"] == "unknown", "a controller says nothing of its process"


def test_eligible_leaders_of_a_moment():
    shrunk = of_orders("controller-3000", "elr", old=[], new=[1], last_known=[])
    none = of_orders("controller-3000", "elr", old=[1], new=[], last_known=[2])
    found = [orders(view_after(*HEALTHY, *more)) for more in ([], [shrunk], [shrunk, none])]
    assert [(one["elr"], one["lastKnownLeader"]) for one in found] == [([], []), ([1], []), ([], [2])]


def test_a_recording_goes_back_and_forth_over_the_quorum():
    history = history_of(QUORUM)
    assert history.view["controllers"] == view_after(*QUORUM)["controllers"]
    assert patched(history.base, [one for step in history.steps for one in step["patch"]]) == history.view
