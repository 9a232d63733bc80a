"""Facts about what a broker without authorizer and SASL responds: ACLs, tokens, quotas, users, features."""

from __future__ import annotations

from typing import Any

from tests.wire_responses.probe import Probe, message

SHA_256, SHA_512 = 1, 2
EXACT, DEFAULT, ANY = 0, 1, 2
"""How a component of DescribeClientQuotas matches."""


def refusals(probe: Probe) -> None:
    """ACLs, tokens and SASL."""
    probe.say("ACLs, tokens, SASL")
    for version in (0, 1):
        probe.case(f"SaslHandshake v{version}", 0, version, message("SaslHandshake", mechanism="PLAIN"))
    for version in (0, 1, 2):
        probe.case(f"SaslAuthenticate v{version}", 0, version, message("SaslAuthenticate", auth_bytes=b"x"))
    acl = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*"} | {
        "operation": 3,
        "permission_type": 3,
    }
    filtered = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    for version in range(4):
        pattern = {"pattern_type_filter": 3} if version == 0 else {}
        probe.case(f"DescribeAcls v{version}", 0, version, message("DescribeAcls", **filtered | pattern))
        request = message("CreateAcls", creations=[acl] * 2)
        probe.case(f"CreateAcls v{version}", 0, version, request)
        probe.case(f"DeleteAcls v{version}", 0, version, message("DeleteAcls", filters=[filtered | pattern] * 2))
    probe.case("CreateAcls of none", 0, 3, message("CreateAcls", creations=[]))
    probe.case("CreateAcls at another broker", probe.other, 3, message("CreateAcls", creations=[acl]))
    probe.case("DescribeAcls of an unknown kind", 0, 3, message("DescribeAcls", **filtered | {"operation": 99}))
    for version in range(4):
        request = message("CreateDelegationToken", max_lifetime_ms=1_000)
        probe.case(f"CreateDelegationToken v{version}", 0, version, request)
        probe.case(f"DescribeDelegationToken v{version}", 0, version, message("DescribeDelegationToken", owners=None))
    for version in range(3):
        request = message("RenewDelegationToken", hmac=b"x", renew_period_ms=1)
        probe.case(f"RenewDelegationToken v{version}", 0, version, request)
        request = message("ExpireDelegationToken", hmac=b"x", expiry_time_period_ms=1)
        probe.case(f"ExpireDelegationToken v{version}", 0, version, request)
    owner = {"principal_type": "User", "principal_name": "a"}
    probe.case("DescribeDelegationToken of a user", 0, 3, message("DescribeDelegationToken", owners=[owner]))
    for_other = {"owner_principal_type": "User", "owner_principal_name": "b", "renewers": [owner]}
    probe.case("CreateDelegationToken for another", 0, 3, message("CreateDelegationToken", **for_other))


def features(probe: Probe) -> None:
    """UpdateFeatures."""
    probe.say("UpdateFeatures")

    def update(name: str, level: int, *, only: bool = False, **more: Any) -> Any:
        wanted = [{"feature": name, "max_version_level": level} | more]
        return message("UpdateFeatures", timeout_ms=5_000, feature_updates=wanted, validate_only=only)

    for version in (0, 1):
        probe.case(f"UpdateFeatures v{version} unknown", probe.controller, version, update("nope", 1))
        probe.case(f"UpdateFeatures v{version} at another broker", probe.other, version, update("nope", 1))
    probe.case("UpdateFeatures checked only", probe.controller, 1, update("nope", 1, only=True))
    probe.case("UpdateFeatures metadata.version", probe.controller, 1, update("metadata.version", 20))
    probe.case("UpdateFeatures level 0", probe.controller, 1, update("nope", 0))
    probe.case("UpdateFeatures level 0, downgrade", probe.controller, 1, update("nope", 0, upgrade_type=2))
    probe.case("UpdateFeatures level 0, unsafe", probe.controller, 1, update("nope", 0, upgrade_type=3))
    probe.case("UpdateFeatures unknown type", probe.controller, 1, update("nope", 1, upgrade_type=9))
    probe.case("UpdateFeatures v0 deletion", probe.controller, 0, update("nope", 0, allow_downgrade=True))
    probe.case("UpdateFeatures level -1", probe.controller, 1, update("nope", -1))
    probe.case("UpdateFeatures empty name", probe.controller, 1, update("", 1))
    probe.case("UpdateFeatures of none", probe.controller, 1, message("UpdateFeatures", feature_updates=[]))
    several = [{"feature": name, "max_version_level": 1} for name in ("a", "b")]
    probe.case("UpdateFeatures of two", probe.controller, 1, message("UpdateFeatures", feature_updates=several))


def entity(**names: str | None) -> list[dict[str, Any]]:
    """Return a quota's entity; None is the default of its type."""
    return [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in names.items()]


def _alter(who: list[dict[str, Any]], only: bool = False, **values: float | None) -> Any:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
    return message("AlterClientQuotas", entries=[{"entity": who, "ops": ops}], validate_only=only)


def quotas(probe: Probe) -> None:
    """AlterClientQuotas and DescribeClientQuotas."""
    probe.say("quotas")
    _show(probe, "before any")
    _put_quotas(probe)
    _refused_quotas(probe)
    _shown_quotas(probe)
    _removed_quotas(probe)


def _say(probe: Probe, name: str, request: Any, version: int = 1, broker: int = 0) -> None:
    probe.case(f"AlterClientQuotas {name}", broker, version, request)


def _show(
    probe: Probe, name: str, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> None:
    named = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components]
    request = message("DescribeClientQuotas", components=named, strict=strict)
    probe.case(f"DescribeClientQuotas {name}", 1, version, request, _quotas)


def _put_quotas(probe: Probe) -> None:
    client = entity(client_id="app")
    _say(probe, "v0 of a client", _alter(client, producer_byte_rate=1e9), 0)
    _say(probe, "of a client at another broker", _alter(client, consumer_byte_rate=2e9), broker=probe.other)
    _say(probe, "checked only", _alter(entity(client_id="checked"), only=True, producer_byte_rate=5.0))
    _say(probe, "of the default client", _alter(entity(client_id=None), request_percentage=2e5))
    _say(probe, "of a user", _alter(entity(user="a"), controller_mutation_rate=1e9))
    _say(probe, "of the default user", _alter(entity(user=None), producer_byte_rate=1.5e9))
    _say(probe, "of a user and client", _alter(entity(user="a", client_id="app"), producer_byte_rate=4e9))
    _say(probe, "of a user's default client", _alter(entity(user="a", client_id=None), producer_byte_rate=4e9))
    _say(probe, "of an odd user", _alter(entity(user="a b=c,/%ü"), producer_byte_rate=4e9))
    _say(probe, "of an address", _alter(entity(ip="10.0.0.1"), connection_creation_rate=1e6))
    _say(probe, "of the default address", _alter(entity(ip=None), connection_creation_rate=1e6))


def _refused_quotas(probe: Probe) -> None:
    client = entity(client_id="app")
    refused: dict[str, Any] = {
        "unknown key": _alter(client, nope=1.0),
        "a key of addresses": _alter(client, connection_creation_rate=1.0),
        "a key of clients": _alter(entity(ip="10.0.0.1"), producer_byte_rate=1.0),
        "negative": _alter(client, producer_byte_rate=-1.0),
        "zero": _alter(client, only=True, producer_byte_rate=0.0),
        "a fraction": _alter(client, producer_byte_rate=1.5),
        "a fraction of a percentage": _alter(client, only=True, request_percentage=1.5),
        "a fraction of a rate": _alter(entity(ip="10.0.0.1"), connection_creation_rate=1.5),
        "too large": _alter(client, producer_byte_rate=1e300),
        "not a number": _alter(client, producer_byte_rate=float("nan")),
        "unknown entity": _alter(entity(group="g"), producer_byte_rate=1.0),
        "no entity": _alter([], producer_byte_rate=1.0),
        "a type twice": _alter([*client, *entity(client_id="b")], producer_byte_rate=1.0),
        "empty name": _alter(entity(client_id=""), producer_byte_rate=1.0),
        "an address and a client": _alter(entity(ip="10.0.0.1", client_id="a"), producer_byte_rate=1.0),
        "no address": _alter(entity(ip="not an address."), connection_creation_rate=1.0),
        "nothing to do": _alter(client),
        "removal of what is not there": _alter(client, request_percentage=None),
        "removal of an unknown key": _alter(client, nope=None),
    }
    for name, request in refused.items():
        _say(probe, name, request)
    twice = _alter(client, producer_byte_rate=7e9)
    twice.entries = [*twice.entries, *_alter(client, only=True, producer_byte_rate=8e9).entries]
    _say(probe, "an entity twice", twice)
    two = _alter(entity(client_id="two"), producer_byte_rate=1e9)
    two.entries = [*two.entries, *_alter(client, nope=1.0).entries]
    _say(probe, "one good, one bad", two)


def _shown_quotas(probe: Probe) -> None:
    probe.wait_for(lambda: "two" in str(probe.ask(1, 1, message("DescribeClientQuotas", components=[]))))
    _show(probe, "all")
    _show(probe, "v0 all", version=0)
    _show(probe, "a client", ("client-id", EXACT, "app"))
    _show(probe, "a client, strictly", ("client-id", EXACT, "app"), strict=True)
    _show(probe, "the default client", ("client-id", DEFAULT, None))
    _show(probe, "any client", ("client-id", ANY, None))
    _show(probe, "any user", ("user", ANY, None))
    _show(probe, "any user, strictly", ("user", ANY, None), strict=True)
    _show(probe, "any user and client", ("user", ANY, None), ("client-id", ANY, None))
    _show(probe, "a user and the default client", ("user", EXACT, "a"), ("client-id", DEFAULT, None))
    _show(probe, "any address", ("ip", ANY, None))
    _show(probe, "an address", ("ip", EXACT, "10.0.0.1"), strict=True)
    _show(probe, "an unknown client", ("client-id", EXACT, "zz"))
    _show(probe, "an address and a client", ("ip", ANY, None), ("client-id", ANY, None))
    _show(probe, "a type twice", ("user", ANY, None), ("user", DEFAULT, None))
    _show(probe, "an unknown type", ("group", ANY, None))
    _show(probe, "an empty type", ("", ANY, None))
    _show(probe, "an unknown match", ("user", 9, None))
    _show(probe, "a name with any", ("user", ANY, "a"))
    _show(probe, "no name with exact", ("user", EXACT, None))
    _show(probe, "none, strictly", strict=True)


def _removed_quotas(probe: Probe) -> None:
    client = entity(client_id="app")
    probe.ask(0, 1, _alter(entity(client_id="b"), producer_byte_rate=None))
    for who in (client, entity(client_id="two")):
        _say(
            probe,
            f"removal from {who[0]['entity_name']}",
            _alter(who, producer_byte_rate=None, consumer_byte_rate=None),
        )
    for who in (entity(client_id=None), entity(user="a"), entity(user=None), entity(ip="10.0.0.1"), entity(ip=None)):
        every = dict.fromkeys(("producer_byte_rate", "request_percentage", "controller_mutation_rate"))
        address = dict.fromkeys(("connection_creation_rate",))
        probe.ask(0, 1, _alter(who, **(address if who[0]["entity_type"] == "ip" else every)))
    for who in (entity(user="a", client_id="app"), entity(user="a", client_id=None), entity(user="a b=c,/%ü")):
        probe.ask(0, 1, _alter(who, producer_byte_rate=None))
    empty = message("DescribeClientQuotas", components=[])
    probe.wait_for(lambda: not probe.ask(1, 1, empty).entries)
    _show(probe, "after all were removed")


def _quotas(found: Any) -> Any:
    entries = None
    if found.entries is not None:
        entries = sorted(
            (
                sorted((one.entity_type, str(one.entity_name)) for one in entry.entity),
                sorted((one.key, one.value) for one in entry.values),
            )
            for entry in found.entries
        )
    return found.error_code, found.error_message, entries


def users(probe: Probe) -> None:
    """AlterUserScramCredentials and DescribeUserScramCredentials."""
    probe.say("users")

    def put(name: str, mechanism: int = SHA_256, iterations: int = 4_096, **more: Any) -> dict[str, Any]:
        secrets = {"salt": b"salt", "salted_password": b"p" * 32} | more
        return {"name": name, "mechanism": mechanism, "iterations": iterations} | secrets

    def alter(*puts: dict[str, Any], gone: list[tuple[str, int]] | None = None) -> Any:
        deletions = [{"name": name, "mechanism": mechanism} for name, mechanism in gone or ()]
        return message("AlterUserScramCredentials", deletions=deletions, upsertions=list(puts))

    def say(name: str, request: Any, broker: int | None = None) -> None:
        at = probe.controller if broker is None else broker
        probe.case(f"AlterUserScramCredentials {name}", at, 0, request, _users)

    def show(name: str, *names: str, every: bool = False) -> None:
        request = message("DescribeUserScramCredentials", users=None if every else [{"name": one} for one in names])
        probe.case(f"DescribeUserScramCredentials {name}", 0, 0, request, _users)

    show("all, before any", every=True)
    show("of none")
    show("unknown user", "nobody")
    say("at another broker", alter(put("a")), probe.other)
    say("new", alter(put("a")))
    say("another mechanism", alter(put("a", SHA_512, 8_192)))
    say("two users", alter(put("b"), put("c")))
    refused = {
        "iterations below 4096": alter(put("d", iterations=4_095)),
        "iterations of SHA-512 below 4096": alter(put("d", SHA_512, 4_095)),
        "iterations at 16384": alter(put("e", iterations=16_384)),
        "iterations above 16384": alter(put("d", iterations=16_385)),
        "unknown mechanism": alter(put("d", 9)),
        "mechanism 0": alter(put("d", 0)),
        "empty user": alter(put("")),
        "a user twice": alter(put("d"), put("d")),
        "put and deleted": alter(put("a"), gone=[("a", SHA_256)]),
        "put and deleted by another mechanism": alter(put("a"), gone=[("a", SHA_512)]),
        "deletion of an unknown user": alter(gone=[("nobody", SHA_256)]),
        "deletion of another mechanism": alter(gone=[("b", SHA_512)]),
        "deletion of an unknown mechanism": alter(gone=[("b", 9)]),
        "deletion of an empty user": alter(gone=[("", SHA_256)]),
        "one good, one bad": alter(put("f"), put("d", iterations=1)),
        "nothing": alter(),
    }
    for name, request in refused.items():
        say(name, request)
    wanted = message("DescribeUserScramCredentials", users=None)
    probe.wait_for(lambda: any(one.user == "e" for one in probe.ask(0, 0, wanted).results))
    show("all", every=True)
    show("a user", "a")
    show("a user twice", "a", "a")
    show("known and unknown", "a", "nobody", "b")
    show("empty name", "")
    say("deletion", alter(gone=[("a", SHA_256), ("b", SHA_256), ("c", SHA_256), ("e", SHA_256)]))
    probe.wait_for(lambda: len(probe.ask(0, 0, wanted).results) < 3)
    show("all that remain", every=True)
    probe.ask(probe.controller, 0, alter(gone=[("f", SHA_256)]))


def _users(found: Any) -> Any:
    top = (found.error_code, found.error_message) if hasattr(found, "error_code") else ()
    return *top, [_user(one) for one in sorted(found.results, key=lambda one: one.user)]


def _user(one: Any) -> Any:
    infos = [(info.mechanism, info.iterations) for info in getattr(one, "credential_infos", ())]
    return one.user, one.error_code, one.error_message, infos
