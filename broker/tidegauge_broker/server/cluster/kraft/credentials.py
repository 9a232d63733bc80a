"""SCRAM credentials of the image; alterations are the controller's (``ports.CredentialStore``).

Source: ``ScramImage.describe``, KIP-554.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tidegauge.cluster_metadata.credentials import (
    MECHANISMS,
    CredentialOutcome,
    Deletion,
    ScramCredential,
    Upsertion,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.apis import ALTER_USER_SCRAM_CREDENTIALS
from tidegauge.kafka.kraft.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidegauge_broker.server.cluster.kraft.forwarding import Forwarding
from tidegauge_broker.server.quorum.listener_security import credential_in
from tidegauge_controller.metadata.image import MetadataImage

_NUMBERS = {name: number for number, name in MECHANISMS.items()}


class ImageCredentials:
    """The SCRAM credentials of the image.

    Args:
        image: returns the image that is in force.
        forwarding: to the controller.
    """

    def __init__(self, image: Callable[[], MetadataImage], forwarding: Forwarding) -> None:
        self._image = image
        self._forwarding = forwarding

    def credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return a user's credential for a mechanism, or None."""
        return credential_in(self._image(), mechanism, user)

    def iterations(self, mechanism: str) -> list[int]:
        """Return the iterations of each user that has a credential for a mechanism."""
        number = _NUMBERS[mechanism]
        return [one.iterations for key, one in self._image().credentials.items() if key.mechanism == number]

    async def read_all(self) -> None:
        """Do nothing: the image has them."""

    async def read(self, user: str) -> None:
        """Do nothing: the image has them."""
        del user

    async def describe(self, users: Sequence[str]) -> dict[str, CredentialOutcome]:
        """Return the mechanisms of these users; none named: of all who have one."""
        known: dict[str, dict[int, int]] = {}
        for key, one in self._image().credentials.items():
            known.setdefault(key.user, {})[key.mechanism] = one.iterations
        if not users:
            return {user: CredentialOutcome(iterations=found) for user, found in known.items()}
        return {user: _described(user, known.get(user, {}), count) for user, count in Counter(users).items()}

    async def alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> dict[str, CredentialOutcome]:
        """Have credentials removed and set; return what became of each user's."""
        request = AlterUserScramCredentialsRequest(
            [ScramCredentialDeletion(*one) for one in deletions], [ScramCredentialUpsertion(*one) for one in upsertions]
        )
        try:
            response = await self._forwarding.ask(ALTER_USER_SCRAM_CREDENTIALS, request)
        except TidegaugeError as problem:
            users = [*(one.user for one in deletions), *(one.user for one in upsertions)]
            return dict.fromkeys(users, CredentialOutcome(problem.code, problem.message))
        return {
            one.user: CredentialOutcome(ErrorCode.of(one.error_code), one.error_message or "")
            for one in response.results
        }


def _described(user: str, iterations: dict[int, int], times: int) -> CredentialOutcome:
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return CredentialOutcome(ErrorCode.DUPLICATE_RESOURCE, message)
    if not iterations:
        message = f"Attempt to describe a user credential that does not exist: {user}"
        return CredentialOutcome(ErrorCode.RESOURCE_NOT_FOUND, message)
    return CredentialOutcome(iterations=iterations)
