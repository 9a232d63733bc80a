"""The rate of accepted connections: quotas of the broker, of each listener, and of each address.

Contract: pure; time is an argument, in ms of one clock that never goes back. The limits are asked for at each
connection: they may change while the broker runs.

Rules (Kafka's ConnectionQuotas, KIP-402 and KIP-612):
    1. A rate is the number of connections in the samples of ``quota.window.num`` and ``quota.window.size.seconds``,
       over all of them but one at least. So a burst of ten times the rate passes before a quota is found exceeded.
    2. A connection above ``max.connection.creation.rate`` of the broker or of its listener (``listener.name.NAME.``)
       counts, and is accepted late: its listener accepts nothing for as long as brings the rate down to the quota, at
       most a sample. Connections to the inter-broker listener are not held up for the broker's rate if there is
       another listener; they do not count for it either.
    3. A connection above ``connection_creation_rate`` of its address does not count, for its listener and the broker
       neither. It is closed without being served, after that time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from tidegauge.settings import INT_MAX
from tidegauge_broker.quotas.stats import QUOTA_WINDOW, Window, WindowedRate, throttle_ms

_MAX_ADDRESSES = 10_000


class CreationRate:
    """The connections of one entity over the latest samples (rule 1)."""

    def __init__(self, window: Window) -> None:
        self._rate = WindowedRate(window)
        self._max_throttle_ms = window.sample_ms

    def record(self, limit: int, now_ms: int, *, counts_above: bool = True) -> int:
        """Count a connection; return the time in ms to hold it up, 0 within the limit.

        Args:
            limit: connections a second; ``INT_MAX``: none.
            now_ms: the time.
            counts_above: whether a connection above the limit counts.
        """
        self._rate.record(1, now_ms)
        if limit >= INT_MAX:
            return 0
        rate = self._rate.measure(now_ms)
        if rate <= limit:
            return 0
        found = min(throttle_ms(rate, limit, self._rate.window_ms(now_ms)), self._max_throttle_ms)
        if not counts_above:
            self.take_back(now_ms)
        return found

    def take_back(self, now_ms: int) -> None:
        """Count a connection no longer that was counted just now."""
        self._rate.record(-1, now_ms)


class ConnectionRates:
    """The quotas of one broker.

    Args:
        of_broker: ``max.connection.creation.rate``.
        of_listener: a listener's, by its name; ``INT_MAX``: none.
        of_address: ``connection_creation_rate`` of an address; ``INT_MAX``: none.
        protected: name of the listener that the broker's rate does not hold up; None: there is none.
        window: over which rates are measured.
    """

    def __init__(
        self,
        of_broker: Callable[[], int] = lambda: INT_MAX,
        of_listener: Callable[[str], int] = lambda _name: INT_MAX,
        of_address: Callable[[str], int] = lambda _address: INT_MAX,
        protected: str | None = None,
        window: Window = QUOTA_WINDOW,
    ) -> None:
        self._of_broker = of_broker
        self._of_listener = of_listener
        self._of_address = of_address
        self._protected = protected
        self._window = window
        self._broker = CreationRate(window)
        self._listeners: dict[str, CreationRate] = {}
        self._addresses: OrderedDict[str, CreationRate] = OrderedDict()

    def accepted(self, listener: str, now_ms: int) -> int:
        """Count a connection; return for how many ms its listener must hold it up and accept no other (rule 2)."""
        own = self._listeners.setdefault(listener, CreationRate(self._window))
        throttle_ms = own.record(self._of_listener(listener), now_ms)
        if listener == self._protected:
            return throttle_ms
        return max(throttle_ms, self._broker.record(self._of_broker(), now_ms))

    def refused(self, listener: str, address: str, now_ms: int) -> int:
        """Return the delay in ms before closing a connection, or 0 (rule 3)."""
        limit = self._of_address(address)
        if limit >= INT_MAX:
            self._addresses.pop(address, None)
            return 0
        own = self._addresses.setdefault(address, CreationRate(self._window))
        self._addresses.move_to_end(address)
        if len(self._addresses) > _MAX_ADDRESSES:
            self._addresses.popitem(last=False)
        found = own.record(limit, now_ms, counts_above=False)
        if found:
            self._listeners[listener].take_back(now_ms)
            if listener != self._protected:
                self._broker.take_back(now_ms)
        return found
