"""A broker's own settings in the file of a KRaft node."""

from tidegauge.settings import BROKER_SETTINGS, parse_broker_settings
from tidegauge.settings.quorum import CONTROLLER_SETTINGS
from tidegauge_broker.server.cluster.node_of import as_broker, kraft_node

_NODE = {
    "process.roles": "broker",
    "node.id": "7",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "log.dirs": "/data",
}
_OF_BOTH = {
    "num.partitions": "4",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "true",
    "auto.leader.rebalance.enable": "false",
    "delete.topic.enable": "false",
    "super.users": "User:root",
    "allow.everyone.if.no.acl.found": "true",
}


def broker_of(**texts: str) -> dict[str, str]:
    """Return a broker's settings in a node's settings."""
    found = {**_NODE, **texts}
    return as_broker(found, kraft_node(found, "localhost"))


def test_what_both_roles_have_is_the_brokers_too() -> None:
    """Without its authorizer, a broker would allow everything."""
    assert {name: broker_of(**_OF_BOTH)[name] for name in _OF_BOTH} == _OF_BOTH


def test_nothing_of_the_controllers_alone_is_unknown_to_the_broker() -> None:
    """All that is left is the broker's."""
    given = {"metadata.log.dir": "/metadata", "broker.session.timeout.ms": "9000", "metadata.max.retention.ms": "1000"}
    assert set(given) < set(CONTROLLER_SETTINGS)
    _, unknown = parse_broker_settings(broker_of(**given))
    assert list(unknown) == []
    assert not set(broker_of(**given)) & (set(CONTROLLER_SETTINGS) - set(BROKER_SETTINGS))


def test_the_authorizer_of_kraft_is_the_brokers() -> None:
    """Its rules equal ZooKeeper mode's."""
    found = broker_of(**{"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"})
    assert found["authorizer.class.name"] == "kafka.security.authorizer.AclAuthorizer"
    settings, _ = parse_broker_settings(found)
    assert settings.text("authorizer.class.name")


def test_a_broker_has_the_nodes_id_and_kafkas_wire_among_brokers() -> None:
    """Brokers of both kinds may be in one cluster."""
    found = broker_of(listeners="PLAINTEXT://127.0.0.1:9092,GRPC://127.0.0.1:9094")
    assert (found["broker.id"], found["inter.broker.listener.name"]) == ("7", "PLAINTEXT")


def test_listeners_of_the_controller_are_not_the_brokers() -> None:
    """With both roles, one setting names the listeners of both."""
    found = broker_of(
        **{
            "process.roles": "broker,controller",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        }
    )
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9092"
