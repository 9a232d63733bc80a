"""The text of a SCRAM credential in the znode of its user. Pure.

Source: ``ScramCredentialUtils``.
"""

from __future__ import annotations

import base64
import binascii

from tidegauge.cluster_metadata.credentials import ScramCredential


def encode_credential(credential: ScramCredential) -> str:
    """Return a credential as ``ScramCredentialUtils.credentialToString`` writes it."""
    parts = {"salt": credential.salt, "stored_key": credential.stored_key, "server_key": credential.server_key}
    texts = [f"{name}={base64.b64encode(value).decode()}" for name, value in parts.items()]
    return ",".join([*texts, f"iterations={credential.iterations}"])


def decode_credential(text: str) -> ScramCredential:
    """Read a znode's credential: ``salt=...,stored_key=...,server_key=...,iterations=...``.

    Raises:
        ValueError: something is missing or malformed; the text of the error has nothing of the credential.
    """
    parts = {name: value for name, _, value in (part.partition("=") for part in text.split(","))}
    try:
        salt, stored, server = (
            base64.b64decode(parts[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return ScramCredential(salt, stored, server, int(parts["iterations"]))
    except (KeyError, ValueError, binascii.Error):
        raise ValueError("Credentials not valid") from None
