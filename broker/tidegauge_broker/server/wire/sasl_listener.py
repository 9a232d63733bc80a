"""SASL of one listener: which mechanisms by which settings, and where credentials are looked up.

Settings of a mechanism (``sasl.jaas.config``, ``connections.max.reauth.ms``) are looked for as
``listener.name.NAME.MECHANISM.SETTING``, then ``listener.name.NAME.SETTING``, then ``SETTING``.
Source: ``ChannelBuilders``, ``JaasContext.loadServerContext``, KIP-103; KIP-368 for re-authentication.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from tidegauge.cluster_metadata.credentials import ScramCredential
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.jaas import LoginModule, login_module_of
from tidegauge.sasl_client import MECHANISMS as SERVED
from tidegauge.sasl_client import OAUTHBEARER, PLAIN, Login
from tidegauge.settings import Values
from tidegauge.wall_time import WallTime
from tidegauge_broker.security.sasl.exchange import Exchange
from tidegauge_broker.security.sasl.oauthbearer import OauthBearerExchange, TokenRules
from tidegauge_broker.security.sasl.plain import PlainExchange
from tidegauge_broker.security.sasl.scram import ScramExchange

_JAAS = "sasl.jaas.config"
_MAX_REAUTH = "connections.max.reauth.ms"
_ENABLED = "sasl.enabled.mechanisms"
_OF_BROKERS = "sasl.mechanism.inter.broker.protocol"
_NONCE_BYTES = 18


class SaslListener:
    """The mechanisms of one listener; see the module.

    Args:
        name: the listener's.
        settings: the broker's.
        credential: returns the SCRAM credential of a mechanism and a user.
        iterations: returns the iterations of each user of a SCRAM mechanism.
        wall: how far the wall clock, by which tokens are valid, is ahead of the broker's own clock.

    Attributes:
        delay_ms: ``connection.failed.authentication.delay.ms``.
        max_receive_bytes: ``sasl.server.max.receive.size``.
    """

    def __init__(
        self,
        name: str,
        settings: Values,
        credential: Callable[[str, str], ScramCredential | None],
        iterations: Callable[[str], Sequence[int]] = lambda _: (),
        wall: WallTime | None = None,
    ) -> None:
        self._wall = wall
        self.delay_ms = settings.integer("connection.failed.authentication.delay.ms")
        self.max_receive_bytes = settings.integer("sasl.server.max.receive.size")
        self._name = name
        self._settings = settings
        self._credential = credential
        self._iterations = iterations
        self._check()

    @property
    def enabled(self) -> tuple[str, ...]:
        """The names of the mechanisms."""
        given: tuple[str, ...] = self._settings.of_listener(self._name, _ENABLED, self._settings[_ENABLED])
        return tuple(mechanism for mechanism in given if mechanism in SERVED)

    def exchange(self, mechanism: str) -> Exchange:
        """Begin an authentication by an enabled mechanism."""
        if mechanism == PLAIN:
            return PlainExchange(self._login_module(mechanism).passwords)
        if mechanism == OAUTHBEARER:
            return OauthBearerExchange(TokenRules.of(self._login_module(mechanism).options), self._wall)
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return ScramExchange(mechanism, functools.partial(self._credential, mechanism), nonce)

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return a user's current SCRAM credential, or None."""
        return self._credential(mechanism, user)

    def iterations(self, mechanism: str) -> Sequence[int]:
        """Return the users' current iterations for a SCRAM mechanism."""
        return self._iterations(mechanism)

    def max_reauth_ms(self, mechanism: str) -> int:
        """Return the longest session of a mechanism in ms; 0: without a limit."""
        return int(self._of_mechanism(mechanism, _MAX_REAUTH))

    def login_of_brokers(self) -> Login:
        """Return this broker's own credentials at other brokers' listeners.

        Their listeners of this name have the same users.

        They are ``username`` and ``password`` of the mechanism's JAAS entry (``JaasContext.loadServerContext``).

        Raises:
            TidegaugeError: INVALID_CONFIG, the mechanism is not enabled, or the entry has no credentials.
        """
        mechanism = self._settings.text(_OF_BROKERS)
        if mechanism not in self.enabled:
            raise _invalid(
                _OF_BROKERS,
                f"{mechanism} must be included in {_ENABLED} when SASL is used for inter-broker communication; "
                f"listener {self._name} has {', '.join(self.enabled)}",
            )
        try:
            return Login.of(mechanism, self._of_mechanism(mechanism, _JAAS))
        except TidegaugeError as problem:
            raise _invalid(self._jaas_setting(mechanism), problem.message) from None

    def _jaas_setting(self, mechanism: str) -> str:
        return f"listener.name.{self._name.lower()}.{mechanism.lower()}.{_JAAS}"

    def _login_module(self, mechanism: str) -> LoginModule:
        text = self._of_mechanism(mechanism, _JAAS)
        return LoginModule("", {}) if text is None else _parsed(text)

    def _of_mechanism(self, mechanism: str, name: str) -> Any:
        otherwise = self._settings.of_listener(self._name, name, self._settings[name])
        return self._settings.of_listener(f"{self._name}.{mechanism}", name, otherwise)

    def _check(self) -> None:
        """Refuse what no client could authenticate itself by.

        Raises:
            TidegaugeError: INVALID_CONFIG.
        """
        given = self._settings.of_listener(self._name, _ENABLED, self._settings[_ENABLED])
        unserved = [mechanism for mechanism in given if mechanism not in SERVED]
        if unserved or not given:
            raise _invalid(
                _ENABLED,
                f"listener {self._name} would have {', '.join(unserved) or 'no mechanism'}; "
                f"served are {', '.join(SERVED)}",
            )
        for mechanism in given:
            setting = self._jaas_setting(mechanism)
            try:
                module = self._login_module(mechanism)
                TokenRules.of(module.options)
            except ValueError as problem:
                raise _invalid(setting, str(problem)) from None
            if mechanism == PLAIN and not module.name.endswith("PlainLoginModule"):
                raise _invalid(
                    setting,
                    "PLAIN needs its users; write org.apache.kafka.common.security.plain.PlainLoginModule required "
                    'user_NAME="PASSWORD";',
                )


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> LoginModule:
    return login_module_of(text)


def _invalid(setting: str, why: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, f"Invalid value for configuration {setting}: {why}")
