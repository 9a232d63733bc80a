"""Credentials as ``--add-scram`` names them: ``SCRAM-SHA-256=[name=alice,password=...]``. Pure.

Source: ``org.apache.kafka.metadata.storage.ScramParser``; KIP-900; RFC 5802, section 3.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable

from tidegauge.cluster_metadata.credentials import MECHANISMS
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.metadata_records.user_scram_credential_record import UserScramCredentialRecord

FEWEST_ITERATIONS = 4096
MOST_ITERATIONS = 16_384
_HASHES = {1: "sha256", 2: "sha512"}
_NUMBERS = {name: number for number, name in MECHANISMS.items()}
_KNOWN = ("name", "salt", "iterations", "password", "saltedpassword")


def parse_scram(text: str, make_salt: Callable[[], bytes]) -> UserScramCredentialRecord:
    """Return the credential of an argument.

    Args:
        text: the option's value.
        make_salt: returns a random salt; called if the argument names none.

    Raises:
        TidegaugeError: INVALID_CONFIG, the argument can't be read. The sentence never has the password.
    """
    mechanism, fields = _split(text)
    name = fields.get("name")
    if not name:
        raise _refusal("You must supply 'name' to add-scram")
    unknown = sorted(fields.keys() - set(_KNOWN))
    if unknown:
        raise _refusal(f"Unknown SCRAM configurations: {', '.join(unknown)}")
    if ("password" in fields) == ("saltedpassword" in fields):
        raise _refusal("You must supply one of 'password' or 'saltedpassword' to add-scram")
    iterations = _iterations(fields.get("iterations"), mechanism)
    if "saltedpassword" in fields and "salt" not in fields:
        raise _refusal("You must supply 'salt' with 'saltedpassword' to add-scram")
    salt = _decoded(fields["salt"], "salt") if "salt" in fields else make_salt()
    algorithm = _HASHES[mechanism]
    if "saltedpassword" in fields:
        salted = _decoded(fields["saltedpassword"], "saltedPassword")
    else:
        salted = hashlib.pbkdf2_hmac(algorithm, fields["password"].encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=salt,
        stored_key=hashlib.new(algorithm, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", algorithm),
        iterations=iterations,
    )


def _split(text: str) -> tuple[int, dict[str, str]]:
    """Return the mechanism's number and the components in the brackets."""
    name, equals, rest = text.partition("=")
    if not equals:
        raise _refusal(f"Failed to find equals sign in SCRAM argument '{text}'")
    if name not in _NUMBERS:
        raise _refusal(f"The add-scram mechanism {name} is not supported.")
    rest = rest.strip()
    if not rest.startswith("["):
        raise _refusal("Expected configuration string to start with [")
    if not rest.endswith("]"):
        raise _refusal("Expected configuration string to end with ]")
    fields: dict[str, str] = {}
    for component in rest[1:-1].split(","):
        key, equals, value = component.partition("=")
        if not equals:
            raise _refusal("No equals sign found in a SCRAM component")
        fields[key.strip()] = value.strip().removeprefix('"').removesuffix('"')
    return _NUMBERS[name], fields


def _iterations(text: str | None, mechanism: int) -> int:
    if text is None:
        return FEWEST_ITERATIONS
    try:
        found = int(text)
    except ValueError:
        raise _refusal(f"Failed to parse iterations count: {text}") from None
    using = f"for add-scram using {MECHANISMS[mechanism].replace('-', '_')}"
    if found < FEWEST_ITERATIONS:
        raise _refusal(f"The 'iterations' value must be >= {FEWEST_ITERATIONS} {using}")
    if found > MOST_ITERATIONS:
        raise _refusal(f"The 'iterations' value must be <= {MOST_ITERATIONS} {using}")
    return found


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as problem:
        raise _refusal(f"Failed to decode given {what}: {problem}") from None


def _refusal(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, sentence)
