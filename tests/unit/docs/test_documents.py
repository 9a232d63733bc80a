"""The reader of pages itself: what counts as equal, and what does not."""

from tests.documents import blocks, missing

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
    real = "Broker 0   127.0.0.1:5000  up (process 11)  controller\nBroker 1   127.0.0.1:5001  up (process 12)"
    assert missing(shown, real) is None
    another = "Broker 0   127.0.0.1:5000  up (process 11)\nBroker 1   127.0.0.1:5001  up (process 12)  controller"
    assert missing(shown, another) is not None, "`up` starts broker 0 first"
    shown, real = (f"18:47:26.432 broker-{broker} storm    Empty, generation 2 (LeaveGroup)" for broker in (1, 0))
    assert missing(shown, real) is None, "its coordinator"
    assert missing(shown, real.replace("generation 2", "generation 3")) is not None
    assert missing("18:41:03.875 broker-0 orders-0 leads, epoch 1", "18:41:03.875 broker-1 orders-0 leads, epoch 1")
    assert missing("   2.7s  kill 1", "  14.0s  kill 1") is None
    assert missing("Sent 5 records in 0.28 s: 5 acknowledged", "Sent 5 records in 1.5 s: 5 acknowledged") is None
    assert missing("Sent 5 records in 0.28 s: 5 acknowledged", "Sent 5 records in 1.5 s: 4 acknowledged") is not None


def test_lines_stand_together_unless_dots_leave_some_out():
    real = "one\ntwo\nthree\nfour"
    assert missing("one\ntwo\n...\nfour", real) is None
    assert missing("one\nfour", real) == "one\nfour"
    assert missing("three\n...\none", real) == "one"
