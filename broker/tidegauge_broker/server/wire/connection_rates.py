"""How fast connections are accepted: quotas of the broker, of each listener, and of each address.

Contract: pure; time is an argument, in ms of one clock that never goes back. The limits are asked for at each
connection: they may change while the broker runs.

Rules (Kafka's ConnectionQuotas, KIP-402 and KIP-612; ``Rate`` and ``SampledStat`` of its metrics):
    1. A rate is the number of connections in up to eleven samples of a second, over the time since the oldest began, at
       least ten seconds. So a burst of ten times the rate passes before a quota is found exceeded.
    2. A connection above ``max.connection.creation.rate`` of the broker or of its listener (``listener.name.NAME.``)
       counts, and is accepted late: its listener accepts nothing for as long as brings the rate down to the quota, at
       most a second. Connections to the inter-broker listener are not held up for the broker's rate where there is
       another listener; they do not count for it either.
    3. A connection above ``connection_creation_rate`` of its address does not count. It is closed without being served,
       after that time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from tidegauge.settings import INT_MAX

SAMPLE_MS = 1000
MOST_SAMPLES = 11
MAX_THROTTLE_MS = 1000
_MAX_ADDRESSES = 10_000


class CreationRate:
    """The connections of one entity over the latest samples (rule 1)."""

    def __init__(self) -> None:
        self._samples: deque[list[int]] = deque()

    def record(self, limit: int, now_ms: int, *, counts_above: bool = True) -> int:
        """Count a connection; return for how many ms it must be held up, 0 where it is within the limit.

        Args:
            limit: connections a second; ``INT_MAX``: none.
            now_ms: the time.
            counts_above: whether a connection above the limit counts.
        """
        samples = self._samples
        while samples and now_ms - samples[0][0] >= MOST_SAMPLES * SAMPLE_MS:
            samples.popleft()
        if not samples or now_ms - samples[-1][0] >= SAMPLE_MS:
            samples.append([now_ms, 0])
        samples[-1][1] += 1
        if limit >= INT_MAX:
            return 0
        window_ms = self._window_ms(now_ms)
        rate = sum(count for _, count in samples) * 1000 / window_ms
        if rate <= limit:
            return 0
        if not counts_above:
            samples[-1][1] -= 1
        if limit <= 0:
            return MAX_THROTTLE_MS
        return min(round((rate - limit) / limit * window_ms), MAX_THROTTLE_MS)

    def _window_ms(self, now_ms: int) -> int:
        """Return the time that the samples stand for: missing ones count in full (``Rate.windowSize``)."""
        elapsed_ms = now_ms - self._samples[0][0]
        missing = MOST_SAMPLES - 1 - elapsed_ms // SAMPLE_MS
        return max(elapsed_ms + max(0, missing) * SAMPLE_MS, 1)


class ConnectionRates:
    """The quotas of one broker.

    Args:
        of_broker: ``max.connection.creation.rate``.
        of_listener: that of a listener, by its name; ``INT_MAX``: none.
        of_address: ``connection_creation_rate`` of an address; ``INT_MAX``: none.
        protected: name of the listener that the broker's rate does not hold up; None: there is none.
    """

    def __init__(
        self,
        of_broker: Callable[[], int] = lambda: INT_MAX,
        of_listener: Callable[[str], int] = lambda _name: INT_MAX,
        of_address: Callable[[str], int] = lambda _address: INT_MAX,
        protected: str | None = None,
    ) -> None:
        self._of_broker = of_broker
        self._of_listener = of_listener
        self._of_address = of_address
        self._protected = protected
        self._broker = CreationRate()
        self._listeners: dict[str, CreationRate] = {}
        self._addresses: OrderedDict[str, CreationRate] = OrderedDict()

    def accepted(self, listener: str, now_ms: int) -> int:
        """Count a connection; return for how many ms its listener must hold it up and accept no other (rule 2)."""
        own = self._listeners.setdefault(listener, CreationRate())
        throttle_ms = own.record(self._of_listener(listener), now_ms)
        if listener == self._protected:
            return throttle_ms
        return max(throttle_ms, self._broker.record(self._of_broker(), now_ms))

    def refused(self, address: str, now_ms: int) -> int:
        """Return after how many ms a connection of an address is to be closed; 0: it is to be served (rule 3)."""
        limit = self._of_address(address)
        if limit >= INT_MAX:
            self._addresses.pop(address, None)
            return 0
        own = self._addresses.setdefault(address, CreationRate())
        self._addresses.move_to_end(address)
        if len(self._addresses) > _MAX_ADDRESSES:
            self._addresses.popitem(last=False)
        return own.record(limit, now_ms, counts_above=False)
