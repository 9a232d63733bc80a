"""SCRAM credentials of users in ZooKeeper: kept, listed, and known to the SASL listeners of this broker.

Rules:
    1. Alterations are checked for each user: one fault refuses all of that user's, and no other user's.
    2. A password never arrives: the client sends it salted and hashed (KIP-554), the znode keeps the two keys of it.
    3. Listeners look credentials up in memory: all are read at the start and with a new session, a user's again when
       it is altered. So the credential of a connection that is there already is not asked for again.
Source: ``ZkAdminManager.alterUserScramCredentials`` and ``describeUserScramCredentials``, ``UserConfigHandler``,
``CredentialProvider``, ``ScramFormatter``, RFC 5802.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from tidegauge.cluster_metadata import DEFAULT_ENTITY
from tidegauge.cluster_metadata.credentials import MECHANISMS, CredentialOutcome, Deletion, ScramCredential, Upsertion
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.java_text import desanitized, sanitized
from tidegauge.sasl_client import HASHES, MIN_ITERATIONS
from tidegauge.znodes import CONFIG, MalformedZnode
from tidegauge.znodes.credentials import decode_credential, encode_credential
from tidegauge_controller.zookeeper.client import NoNode, ZooKeeper, ZooKeeperError
from tidegauge_controller.zookeeper.config_admin import ConfigAdmin

LOG = logging.getLogger("tidegauge.configs")
MAX_ITERATIONS = 16_384
_ITERATIONS = re.compile(r"(?:^|,)iterations=([0-9]{1,9})(?![0-9])")
_NO_NAME = "Username must not be empty"
_UNEXPECTED = "The server experienced an unexpected error when processing the request."


class ScramUsers:
    """Credentials in ZooKeeper; see the module."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._admin = ConfigAdmin(zookeeper)
        self._known: dict[str, dict[str, ScramCredential]] = {}

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return a user's credential for a mechanism, as known here (rule 3)."""
        return self._known.get(user, {}).get(mechanism)

    def iterations(self, mechanism: str) -> list[int]:
        """Return the iterations of each user that has a credential for a mechanism."""
        return [found[mechanism].iterations for found in self._known.values() if mechanism in found]

    async def read_all(self) -> None:
        """Read all users again.

        Raises:
            ZooKeeperError: ZooKeeper could not be read.
        """
        self._known = {name: await self._credentials(name) for name in await self._names()}

    async def read(self, user: str) -> None:
        """Read a user again, by the name in the notification: the name of its znode below ``users``.

        Raises:
            ZooKeeperError: ZooKeeper could not be read.
        """
        name = desanitized(user)
        self._known[name] = await self._credentials(name)

    async def _credentials(self, user: str) -> dict[str, ScramCredential]:
        texts = await self._texts(user)
        found: dict[str, ScramCredential] = {}
        for mechanism in MECHANISMS.values():
            if mechanism not in texts:
                continue
            try:
                found[mechanism] = decode_credential(texts[mechanism])
            except ValueError:
                LOG.warning("The credential of user %s for %s is unreadable and is left out", user, mechanism)
        return found

    async def describe(self, users: Sequence[str]) -> dict[str, CredentialOutcome]:
        """Return the mechanisms of these users; none named: of all who have one.

        Raises:
            ZooKeeperError: ZooKeeper could not be read.
        """
        if not users:
            found = {name: await self._iterations(name) for name in await self._names()}
            return {name: CredentialOutcome(iterations=iterations) for name, iterations in found.items() if iterations}
        counted = Counter(users)
        return {name: await self._described(name, twice=count > 1) for name, count in counted.items()}

    async def _described(self, name: str, *, twice: bool) -> CredentialOutcome:
        if twice:
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            return CredentialOutcome(ErrorCode.DUPLICATE_RESOURCE, message)
        if not name:
            return CredentialOutcome(ErrorCode.RESOURCE_NOT_FOUND, _NO_NAME)
        try:
            iterations = await self._iterations(name)
        except ZooKeeperError as problem:
            LOG.warning("The credentials of user %s could not be read: %r", name, problem)
            return CredentialOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, _UNEXPECTED)
        if not iterations:
            message = f"Attempt to describe a user credential that does not exist: {name}"
            return CredentialOutcome(ErrorCode.RESOURCE_NOT_FOUND, message)
        return CredentialOutcome(iterations=iterations)

    async def alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> dict[str, CredentialOutcome]:
        """Remove and set credentials (rule 1)."""
        every: list[Deletion | Upsertion] = [*deletions, *upsertions]
        named = Counter((one.user, one.mechanism) for one in every)
        outcomes: dict[str, CredentialOutcome] = {}
        for user in dict.fromkeys(one.user for one in every):
            gone = [one for one in deletions if one.user == user]
            new = [one for one in upsertions if one.user == user]
            twice = any(count > 1 for (name, _), count in named.items() if name == user)
            refused = _refusal(gone, new, twice=twice)
            outcomes[user] = refused or await self._altered(user, gone, new)
        return outcomes

    async def _altered(self, user: str, gone: Collection[Deletion], new: Collection[Upsertion]) -> CredentialOutcome:
        def change(current: Mapping[str, str]) -> dict[str, str]:
            wanted = dict(current)
            for deletion in gone:
                if wanted.pop(MECHANISMS[deletion.mechanism], None) is None:
                    raise TidegaugeError(
                        ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                    )
            return wanted | {MECHANISMS[one.mechanism]: _credential(one) for one in new}

        try:
            number = await self._admin.alter(f"users/{sanitized(user)}", change)
        except TidegaugeError as problem:
            return CredentialOutcome(problem.code, problem.message)
        except ZooKeeperError as problem:
            message = f"ZooKeeper did not take the change: {problem}; look and try again"
            return CredentialOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        LOG.info("Updated the SCRAM credentials of %s, change %d", user, number)
        return CredentialOutcome()

    async def _names(self) -> list[str]:
        try:
            children = await self._zookeeper.children(f"{CONFIG}/users")
        except NoNode:
            return []
        return [desanitized(child) for child in sorted(children) if child != DEFAULT_ENTITY]

    async def _texts(self, user: str) -> Mapping[str, str]:
        try:
            return await self._admin.read(f"users/{sanitized(user)}")
        except MalformedZnode:  # its message would name the secret
            LOG.warning("The credentials of user %s are unreadable and are left out", user)
            return {}

    async def _iterations(self, user: str) -> dict[int, int]:
        values = await self._texts(user)
        return {
            number: int(found[1])
            for number, mechanism in MECHANISMS.items()
            if (found := _ITERATIONS.search(values.get(mechanism, "")))
        }


def _refusal(gone: Sequence[Deletion], new: Sequence[Upsertion], *, twice: bool) -> CredentialOutcome | None:
    every: list[Deletion | Upsertion] = [*gone, *new]
    if not every[0].user:
        return CredentialOutcome(ErrorCode.UNACCEPTABLE_CREDENTIAL, _NO_NAME)
    if any(one.mechanism not in MECHANISMS for one in every):
        return CredentialOutcome(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if any(one.iterations < MIN_ITERATIONS for one in new):
        return CredentialOutcome(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if any(one.iterations > MAX_ITERATIONS for one in new):
        return CredentialOutcome(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if twice:
        message = "A user credential cannot be altered twice in the same request"
        return CredentialOutcome(ErrorCode.DUPLICATE_RESOURCE, message)
    return None


def _credential(one: Upsertion) -> str:
    """Return the text of a credential with the keys of a salted password."""
    algorithm = HASHES[MECHANISMS[one.mechanism]]
    client_key = hmac.digest(one.salted_password, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    server_key = hmac.digest(one.salted_password, b"Server Key", algorithm)
    return encode_credential(ScramCredential(one.salt, stored_key, server_key, one.iterations))
