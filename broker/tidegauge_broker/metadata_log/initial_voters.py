"""Voters as ``--initial-controllers`` names them: ``id@host:port:directory-id``, with commas between them. Pure.

Source: ``org.apache.kafka.raft.DynamicVoter`` and ``DynamicVoters``; KIP-853.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.uuids import uuid_of
from tidegauge_controller.raft.values import Endpoint, ReplicaKey, Voter, VoterSet

_HIGHEST_PORT = 65535


def parse_initial_voters(text: str, listener: str) -> VoterSet:
    """Return the voters of ``--initial-controllers``.

    Args:
        text: the option's value.
        listener: the name of the listener that the endpoints belong to.

    Raises:
        TidegaugeError: INVALID_CONFIG, a voter can't be read, an id comes twice, or there is none.
    """
    voters = [_voter(part.strip(), listener) for part in text.split(",") if part.strip()]
    if not voters:
        raise _refusal("No voters given.")
    seen: set[int] = set()
    for voter in voters:
        if voter.key.id in seen:
            raise _refusal(f"Node id {voter.key.id} was specified more than once.")
        seen.add(voter.key.id)
    return VoterSet.of(voters)


def _voter(text: str, listener: str) -> Voter:
    node_text, at, rest = text.partition("@")
    if not at:
        raise _refusal("No @ found in dynamic voter string.")
    if not node_text:
        raise _refusal("Invalid @ at beginning of dynamic voter string.")
    node_id = _number(node_text, "node id")
    if node_id < 0:
        raise _refusal(f"Invalid negative node id {node_id} in dynamic voter string.")
    host, rest = _host(rest)
    port_text, colon, directory_text = rest.partition(":")
    if not colon:
        raise _refusal("No colon following port could be found.")
    port = _number(port_text, "port")
    if not 0 <= port <= _HIGHEST_PORT:
        raise _refusal(f"Invalid port {port} in dynamic voter string.")
    try:
        directory = uuid_of(directory_text)
    except ValueError:
        raise _refusal("Failed to parse directory ID in dynamic voter string.") from None
    return Voter(ReplicaKey(node_id, directory), (Endpoint(listener, host, port),))


def _host(text: str) -> tuple[str, str]:
    """Return the host, without brackets, and what follows the colon behind it."""
    if not text:
        raise _refusal("No hostname found after node id.")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise _refusal("Hostname began with left bracket, but no right bracket was found.")
        if not rest.startswith(":"):
            raise _refusal("Port section must start with a colon.")
        return host, rest[1:]
    host, colon, rest = text.partition(":")
    if not colon:
        raise _refusal("No colon following hostname could be found.")
    return host, rest


def _number(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _refusal(f"Failed to parse {what} in dynamic voter string.") from None


def _refusal(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, sentence)
