"""Changes of SCRAM credentials. A password never arrives: the client sends it salted and hashed.

Source: ``ScramControlManager``, ``ScramFormatter``; RFC 5802, KIP-554, KIP-900.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Sequence

from tidegauge.cluster_metadata.credentials import MECHANISMS, Deletion, Upsertion
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from tidegauge.kafka.metadata_records.user_scram_credential_record import UserScramCredentialRecord
from tidegauge.sasl_client import HASHES, MIN_ITERATIONS
from tidegauge_controller.metadata.decisions.topic_checks import check_record_count
from tidegauge_controller.metadata.decisions.view import ClusterView, Decision
from tidegauge_controller.metadata.image import CredentialKey
from tidegauge_controller.metadata.records import made

MAX_ITERATIONS = 16_384


def alter_credentials(
    view: ClusterView, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> Decision[dict[str, TidegaugeError | None]]:
    """Remove and set credentials; the response has the outcome of each user.

    A user may be named once: unlike a controller in ZooKeeper mode, this one refuses two mechanisms of a user in one
    request.

    Raises:
        TidegaugeError: POLICY_VIOLATION, that takes too many records.
    """
    every: list[Deletion | Upsertion] = [*deletions, *upsertions]
    named = Counter(one.user for one in every)
    records: list[MetadataRecord] = []
    results: dict[str, TidegaugeError | None] = {}
    for one in every:
        if one.user in results:
            continue
        results[one.user] = problem = _problem(view, one, twice=named[one.user] > 1)
        if problem is None:
            records.append(_record(one))
            check_record_count(records)
    return Decision(records, results, atomic=True)


def _problem(view: ClusterView, one: Deletion | Upsertion, *, twice: bool) -> TidegaugeError | None:
    """Return why an alteration is refused, or None."""
    if not one.user:
        return TidegaugeError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if one.mechanism not in MECHANISMS:
        return TidegaugeError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(one, Upsertion):
        if one.iterations < MIN_ITERATIONS:
            return TidegaugeError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if one.iterations > MAX_ITERATIONS:
            return TidegaugeError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    elif CredentialKey(one.mechanism, one.user) not in view.image.credentials:
        return TidegaugeError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    if twice:
        return TidegaugeError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )
    return None


def _record(one: Deletion | Upsertion) -> MetadataRecord:
    """Return a checked alteration's record, with the keys of RFC 5802."""
    if isinstance(one, Deletion):
        return made(RemoveUserScramCredentialRecord(one.user, one.mechanism))
    algorithm = HASHES[MECHANISMS[one.mechanism]]
    client_key = hmac.digest(one.salted_password, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    server_key = hmac.digest(one.salted_password, b"Server Key", algorithm)
    return made(UserScramCredentialRecord(one.user, one.mechanism, one.salt, stored_key, server_key, one.iterations))
