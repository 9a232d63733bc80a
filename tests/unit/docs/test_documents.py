"""The reader of pages itself: what counts as equal, and what does not."""

from tests.documents import blocks, missing, renamed

PAGE = """\
# A page

```sh
tidegauge up -d
```

It says:

```text
Broker 0   127.0.0.1:19092  up (process 8400)  controller
```

<!-- not run: takes an hour -->
```sh
make bench
```

<!-- ends with 4 -->
```sh
tidegauge wait --in-sync orders
```

```
a drawing
```
"""


def test_blocks_have_their_output_and_their_comments():
    up, bench, wait, drawing = blocks(PAGE)
    assert (up.line, up.text, up.exit_code) == (3, "tidegauge up -d", 0)
    assert up.expected == "Broker 0   127.0.0.1:19092  up (process 8400)  controller"
    assert [block.is_run for block in (up, bench, wait, drawing)] == [True, False, True, False]
    assert (wait.exit_code, wait.expected) == (4, None)


def test_what_differs_from_run_to_run_counts_as_equal():
    shown = "Broker 0   127.0.0.1:19092  up (process 8400)  controller\nBroker 1   127.0.0.1:19093  up (process 8)"
    real = "Broker 0   127.0.0.1:5000  up (process 11)\nBroker 1   127.0.0.1:5001  up (process 12)  controller"
    assert missing(shown, real) is None
    assert missing("   2.7s  kill 1", "  14.0s  kill 1") is None
    assert missing("Sent 5 records in 0.28 s: 5 acknowledged", "Sent 5 records in 1.5 s: 5 acknowledged") is None
    assert missing("Sent 5 records in 0.28 s: 5 acknowledged", "Sent 5 records in 1.5 s: 4 acknowledged") is not None


def test_lines_stand_together_unless_dots_leave_some_out():
    real = "one\ntwo\nthree\nfour"
    assert missing("one\ntwo\n...\nfour", real) is None
    assert missing("one\nfour", real) == "one\nfour"
    assert missing("three\n...\none", real) == "one"


def test_brokers_change_names_in_commands_and_in_tables():
    names = {0: 2, 2: 0}
    assert renamed("tidegauge create-topic orders --replica-assignment 1:2:0,2:0:1", names) == (
        "tidegauge create-topic orders --replica-assignment 1:0:2,0:2:1"
    )
    assert renamed("tidegauge wait --leader orders-0=2\ntidegauge start 0", names) == (
        "tidegauge wait --leader orders-0=0\ntidegauge start 2"
    )
    assert renamed("\tTopic: orders\tPartition: 0\tLeader: 2\tReplicas: 1,2,0\tIsr: 2,0", names) == (
        "\tTopic: orders\tPartition: 0\tLeader: 0\tReplicas: 1,0,2\tIsr: 0,2"
    )
    assert renamed("\t\t2       leader    yes  0          1000  1000  0    0@0", names) == (
        "\t\t0       leader    yes  0          1000  1000  0    0@0"
    )
    assert renamed("The leader knows of broker 0: 1000, broker 1: 1000; HW 1000", names) == (
        "The leader knows of broker 2: 1000, broker 1: 1000; HW 1000"
    )


def test_what_verbs_sort_by_broker_is_equal_in_any_order():
    shown = renamed("The leader knows of broker 1: 900, broker 2: 1000; HW 900", {0: 2, 2: 0})
    assert missing(shown, "The leader knows of broker 0: 1000, broker 1: 900; HW 900") is None
    assert missing(shown, "The leader knows of broker 0: 900, broker 1: 1000; HW 900") is not None
