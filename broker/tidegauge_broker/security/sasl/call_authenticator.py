"""The user of a gRPC call, by the credential in its metadata. Pure except for hashes; times and secrets are arguments.

Rules:
    1. The users belong to the listener's SASL mechanisms: a password is PLAIN's, or SCRAM's, whose keys in ZooKeeper
       are computed from it; a token is OAUTHBEARER's. A credential refused on a Kafka listener is refused here.
    2. The user of a call that names no mechanism is looked for in all that are enabled; PLAIN, which is cheap, first.
    3. A password that SCRAM's keys have proved is remembered under a keyed hash of the credential, until the keys of
       the user change: the costly hash is computed once, and the password is kept nowhere.
    4. A refusal does not show whether the user exists, by its text or by its time: the password of an unknown user of
       SCRAM is compared with a placeholder of its own, always the same one for a name, with the iterations that a known
       user has.
    5. A session is a call. It lasts until the token expires or for ``connections.max.reauth.ms``, whichever is shorter.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tidegauge.call_credentials import Basic, CallCredential, credential_of
from tidegauge.cluster_metadata.credentials import ScramCredential
from tidegauge.principal import USER, Principal
from tidegauge.sasl_client import HASHES, MECHANISMS, MIN_ITERATIONS, OAUTHBEARER
from tidegauge_broker.security.sasl.exchange import AuthenticationRefused, Exchange, InvalidCredentials
from tidegauge_broker.security.sasl.scram import has_password

MAX_REMEMBERED = 1_000
_NO_CREDENTIAL = (
    "the call has no credential, and this listener asks for one; set security.protocol=SASL_SSL, sasl.mechanism and "
    "sasl.jaas.config"
)


class ListenerMechanisms(Protocol):
    """The mechanisms of a listener, and their users."""

    @property
    def enabled(self) -> Sequence[str]:
        """Their names."""
        ...

    def exchange(self, mechanism: str) -> Exchange:
        """Begin an authentication by an enabled mechanism."""
        ...

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return a user's SCRAM credential, or None."""
        ...

    def iterations(self, mechanism: str) -> Sequence[int]:
        """Return the known users' iterations for a SCRAM mechanism, in any order."""
        ...

    def max_reauth_ms(self, mechanism: str) -> int:
        """Return ``connections.max.reauth.ms`` of a mechanism; 0: sessions have no limit of their own."""
        ...


class CallSession(NamedTuple):
    """An authenticated call.

    Attributes:
        principal: of its user.
        ends_ms: when the session ends, in epoch ms; None: never.
    """

    principal: Principal
    ends_ms: int | None


class _Proved(NamedTuple):
    """A password that was right."""

    mechanism: str
    user: str
    keys: ScramCredential


class ToProve(NamedTuple):
    """A password that is to be compared with SCRAM's keys, which takes milliseconds."""

    mechanism: str
    user: str
    password: str
    keys: ScramCredential

    def __repr__(self) -> str:
        """Return a text without the password."""
        return f"ToProve({self.mechanism}, {self.user!r})"


class CallAuthenticator:
    """The calls of one listener; see the module.

    Args:
        mechanisms: of the listener.
        secret: random, of this process: without it the remembered hashes are of no use.
    """

    def __init__(self, mechanisms: ListenerMechanisms, secret: bytes) -> None:
        self._mechanisms = mechanisms
        self._secret = secret
        self._proved: OrderedDict[bytes, _Proved] = OrderedDict()

    def known(self, value: str | None, mechanism: str | None, now_ms: int) -> CallSession | None:
        """Return the session of a call with a proved password, or None.

        None: the call is to be authenticated (rule 3).
        """
        if value is None or not self._proved:
            return None
        proved = self._proved.get(self.key(value, mechanism))
        if proved is None or proved.mechanism not in self._mechanisms.enabled:
            return None
        if self._mechanisms.credential(proved.mechanism, proved.user) != proved.keys:
            return None
        return self._session(proved.mechanism, proved.user, None, now_ms)

    def begin(self, value: str | None, mechanism: str | None, now_ms: int) -> CallSession | list[ToProve]:
        """Authenticate a call as far as that is cheap.

        Args:
            value: of ``authorization``; None: the call has none.
            mechanism: the one that the call names.
            now_ms: the time, by the broker's own clock.

        Returns:
            The session, or the passwords of which one has to be right: give ``proved`` the first that is.

        Raises:
            AuthenticationRefused: the credential is not accepted; the text is the client's too.
        """
        if value is None:
            raise AuthenticationRefused(_NO_CREDENTIAL)
        try:
            credential = credential_of(value)
        except ValueError as problem:
            raise AuthenticationRefused(f"Authentication failed: {problem}") from None
        to_prove: list[ToProve] = []
        refusal: AuthenticationRefused | None = None
        for one in self._meant(credential, mechanism):
            if one in HASHES and isinstance(credential, Basic):
                keys = self._mechanisms.credential(one, credential.user)
                if keys is None or keys.iterations < MIN_ITERATIONS:
                    keys = self._placeholder(one, credential.user)
                to_prove.append(ToProve(one, credential.user, credential.password, keys))
                continue
            try:
                return self._exchanged(one, credential, now_ms)
            except AuthenticationRefused as problem:
                refusal = problem
            except InvalidCredentials:
                refusal = _invalid(one)
        if not to_prove and refusal is not None:
            raise refusal
        return to_prove

    def is_right(self, one: ToProve) -> bool:
        """Return whether a password is right, which takes milliseconds; blocks."""
        return has_password(one.keys, one.mechanism, one.password)

    def proved(self, value: str, mechanism: str | None, one: ToProve, now_ms: int) -> CallSession:
        """Remember a password that is right, and return the session."""
        self._proved[self.key(value, mechanism)] = _Proved(one.mechanism, one.user, one.keys)
        if len(self._proved) > MAX_REMEMBERED:
            self._proved.popitem(last=False)
        return self._session(one.mechanism, one.user, None, now_ms)

    @staticmethod
    def refusal(to_prove: Sequence[ToProve]) -> AuthenticationRefused:
        """Return the refusal of passwords none of which is right."""
        return _invalid(to_prove[-1].mechanism)

    def _meant(self, credential: CallCredential, mechanism: str | None) -> list[str]:
        """Return the mechanisms that could have the user; rule 2."""
        is_token = not isinstance(credential, Basic)
        fitting = [one for one in MECHANISMS if (one == OAUTHBEARER) is is_token]
        enabled = self._mechanisms.enabled
        meant = [one for one in fitting if one in enabled and mechanism in {None, one}]
        if not meant:
            named = mechanism or " or ".join(fitting)
            raise AuthenticationRefused(f"Unsupported SASL mechanism {named}; enabled are {', '.join(enabled)}")
        return meant

    def _exchanged(self, mechanism: str, credential: CallCredential, now_ms: int) -> CallSession:
        """Authenticate by the only message of PLAIN or OAUTHBEARER.

        Raises:
            AuthenticationRefused, InvalidCredentials: see there.
        """
        exchange = self._mechanisms.exchange(mechanism)
        if isinstance(credential, Basic):
            exchange.evaluate(f"\0{credential.user}\0{credential.password}".encode(), now_ms)
        else:
            exchange.evaluate(f"n,,\x01auth=Bearer {credential.token}\x01\x01".encode(), now_ms)
            if exchange.principal_name is None:
                exchange.evaluate(b"\x01", now_ms)  # it says why
        assert exchange.principal_name is not None
        return self._session(mechanism, exchange.principal_name, exchange.expires_ms, now_ms)

    def _session(self, mechanism: str, user: str, expires_ms: int | None, now_ms: int) -> CallSession:
        limit_ms = self._mechanisms.max_reauth_ms(mechanism)
        limits = [] if expires_ms is None else [expires_ms]
        if limit_ms > 0:
            limits.append(now_ms + limit_ms)
        return CallSession(Principal(USER, user), min(limits) if limits else None)

    def _placeholder(self, mechanism: str, user: str) -> ScramCredential:
        """Return keys that no password has, for an unknown user; rule 4."""
        choice = hmac.digest(self._secret, f"{mechanism}\0{user}".encode(errors="surrogatepass"), hashlib.sha256)
        counts = sorted(one for one in self._mechanisms.iterations(mechanism) if one >= MIN_ITERATIONS)
        iterations = counts[int.from_bytes(choice[:8]) % len(counts)] if counts else MIN_ITERATIONS
        return ScramCredential(choice[8:], b"", b"", iterations)

    def key(self, value: str, mechanism: str | None) -> bytes:
        """Return the keyed hash under which a credential is known (rule 3)."""
        return hmac.digest(self._secret, f"{mechanism}\0{value}".encode(), hashlib.sha256)


def _invalid(mechanism: str) -> AuthenticationRefused:
    return AuthenticationRefused(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
