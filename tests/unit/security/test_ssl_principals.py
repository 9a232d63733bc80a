"""From a client's certificate to its principal: the subject as Java writes it, and Kafka's mapping rules (KIP-371)."""

from __future__ import annotations

import contextlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors import TidegaugeError
from tidegauge.principal import ANONYMOUS, Principal
from tidegauge.settings import parse_broker_settings
from tidegauge_broker.security.distinguished_name import MalformedCertificate, name_of, subject_of
from tidegauge_broker.security.ssl_principal_mapper import NoMatchingRule, SslPrincipalMapper
from tidegauge_broker.server.wire.client_certificates import ClientCertificates, NoPrincipal

ALICE = ssl.PEM_cert_to_DER_cert("""-----BEGIN CERTIFICATE-----
MIIBdDCCARugAwIBAgIUPH//iwjEp9vZ0D7ua537DLPKDHwwCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFYWxpY2UwHhcNMjYxMTIzMTgxMTUyWhcNMzIwNTE1MTgxMTUy
WjAQMQ4wDAYDVQQDDAVhbGljZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAO5
VChcYtyPk0jcSU78J1LoqLaCwCDF7DaA45//inFa+xwVbNIeE6TGUyCu2W8YDTN3
1M3Hf7ngJNW5Q0YTJWijUzBRMB0GA1UdDgQWBBSsxwqOd4dVTcA5F8pZo+TtFRxV
ATAfBgNVHSMEGDAWgBSsxwqOd4dVTcA5F8pZo+TtFRxVATAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0cAMEQCICfU7iWQed3bcsMUZQ7J4o1a+v4X0JRf3+z0
u1uKBGGQAiAbk0ObRit99HkvQD1Mp5xwvSpoIT2T4idyLhN5gNq+pw==
-----END CERTIFICATE-----
""")
NAMES = {
    ("3010310e300c06035504030c05616c696365"): "CN=alice",
    (
        "3063310b30090603550406130244453110300e06035504080c074261792065726e3110300e06035504070c074d2c20756e63"
        "6831163008060355040b0c0178300a060355040a0c034f72673118301606035504030c0f6123623b633c643e3d2271225c7a"
        "20"
    ): 'CN=a\\#b\\;c\\<d\\>\\=\\"q\\"\\\\z\\ ,OU=x+O=Org,L=M\\, unch,ST=Bay ern,C=DE',
    (
        "307331133011060a0992268993f22c6401191603636f6d31163014060a0992268993f22c640119160667656f646973311230"
        "10060a0992268993f22c6401010c026d653114301206092a864886f70d01090116056140622e63310e300c06035504030c05"
        "206c656164310a30080603550405130135"
    ): "2.5.4.5=#130135,CN=\\ lead,1.2.840.113549.1.9.1=#16056140622e63,UID=me,DC=geodis,DC=com",
    (
        "304e3118301606035504030c0f4ac3bc7267656e204dc3bcc39f6967310e300c06035504090c05466f6f2031310a30080603"
        "55040c0c0154310a3008060355042a0c0167310a300806035504040c0173"
    ): "2.5.4.4=#0c0173,2.5.4.42=#0c0167,2.5.4.12=#0c0154,STREET=Foo 1,CN=Jürgen Müßig",
    (
        "3034310e300c06035504030c05236861736831123010060355040a0c09207370202061636520310e300c060355040b0c057461620978"
    ): "OU=tab\tx,O=\\ sp  ace\\ ,CN=\\#hash",
}
"""Names in DER, and what ``X500Principal.getName()`` of a JDK 17 makes of them."""


@pytest.mark.parametrize(("der", "text"), NAMES.items())
def test_a_subject_is_written_as_java_writes_it(der: str, text: str) -> None:
    """RFC 2253: the last relative name first, nine keywords, escapes."""
    assert name_of(bytes.fromhex(der)) == text


def test_the_subject_is_found_in_the_certificate() -> None:
    assert subject_of(ALICE) == "CN=alice"


@given(st.integers(0, len(ALICE) - 1), st.binary(max_size=4))
def test_a_certificate_with_other_bytes_gives_a_name_or_is_refused(at: int, put: bytes) -> None:
    """OpenSSL has verified it before; still no bytes end in another error."""
    with contextlib.suppress(MalformedCertificate):
        assert isinstance(subject_of(ALICE[:at] + put + ALICE[at + len(put) :]), str)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_name_are_refused(data: bytes) -> None:
    with contextlib.suppress(MalformedCertificate):
        assert isinstance(name_of(data), str)


@pytest.mark.parametrize(
    ("rules", "subject"),
    [
        ("RULE:(?i)^CN=kafka,.*$/kafka/", "CN=\u212aafka,O=x"),
        (r"RULE:^CN=(\w+)$/$1/", "CN=\u043a\u0430fka"),
        (r"RULE:^CN=admin(\d)$/admin/", "CN=admin\u0661"),
        ("RULE:^CN=(.*)$/$1/", "CN=kafka\u2028"),
    ],
)
def test_a_name_that_only_looks_like_anothers_gives_no_principal(rules: str, subject: str) -> None:
    """Java's classes and (?i) are about ASCII; Python's would make KELVIN SIGN + "afka" the principal User:kafka."""
    with pytest.raises(NoMatchingRule):
        SslPrincipalMapper(rules).principal(subject)


DOCUMENTED = ", ".join(  # noqa: FLY002 - a rule a line
    [
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    ]
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_gives_the_name(subject: str, name: str) -> None:
    """The examples of KIP-371 and of Kafka's documentation."""
    assert SslPrincipalMapper(DOCUMENTED).principal(subject) == Principal("User", name)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/", "Tkac\\, Adam"),  # a comma in the name
        ("RULE:^CN=(.*),OU=.*$/$1-$4/", "Tkac\\, Adam-$4"),  # a group that there is not stays text
        ("RULE:^CN=(.*),OU=.*$/$10/", "Tkac\\, Adam0"),  # as many digits as name a group
        ("RULE:^CN=(.*),OU=.*$/\\$1\\/$1/", "$1/Tkac\\, Adam"),
        ("RULE:^CN=.*$/service/U", "SERVICE"),
        ("RULE:(.*)/x$1/", "xCN=Tkac\\, Adam,OU=ITZ,DC=geodis,DC=czx"),  # Java replaces every match, the empty one too
    ],
)
def test_a_replacement_has_groups_and_escapes(rule: str, name: str) -> None:
    """SslPrincipalMapper.Rule.apply, escapeLiteralBackReferences; String.replaceAll."""
    assert SslPrincipalMapper(rule).principal("CN=Tkac\\, Adam,OU=ITZ,DC=geodis,DC=cz").name == name


@pytest.mark.parametrize(
    ("rules", "split"),
    [
        ("", "[]"),
        ("RULE:/.*/L", "[RULE:/.*/L]"),
        ("  RULE:   /     / ,  DEFAULT  ", "[RULE:   /     , DEFAULT]"),
        ("  RULE:([A-Z]*)/$1/U   ,RULE:([a-z]+)/$1/,   DEFAULT  ", "[RULE:([A-Z]*)/$1/U, RULE:([a-z]+)/$1, DEFAULT]"),
        (",   , , ,      , , ,   ", "[]"),
        (",,RULE://,,,DEFAULT,,", "[RULE:/, DEFAULT]"),
        ("RULE:\\**\\/+/*/L,RULE:\\/*\\**/**/", "[RULE:\\**\\/+/*/L, RULE:\\/*\\**/**]"),
        (
            "RULE:,RULE:,/,RULE:,\\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,RULE:, DEFAULT, /DEFAULT/,DEFAULT",
            "[RULE:,RULE:,/,RULE:,\\//U, RULE:,/RULE:,, RULE:,RULE:,/L,RULE:,/L, RULE:, DEFAULT, /DEFAULT, DEFAULT]",
        ),
    ],
)
def test_commas_separate_rules_but_not_within_one(rules: str, split: str) -> None:
    """Kafka's SslPrincipalMapper prints the same texts so."""
    assert str(SslPrincipalMapper(rules)) == split


@pytest.mark.parametrize(
    "rules",
    [
        *("default", "DEFAUL", "DEFAULT/L", "DEFAULT/U"),
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:^CN=(/$1/",
        "RULE:^CN=.*/$1/",
        "RULE:^CN=(.*)/$/",
    ],
)
def test_a_rule_that_can_not_work_is_refused_at_the_start(rules: str) -> None:
    """The last three are refused by Kafka too, the patterns at its start and the replacements with each connection."""
    with pytest.raises(ValueError, match="Invalid rule"):
        SslPrincipalMapper(rules)


def test_a_subject_without_a_matching_rule_has_no_principal() -> None:
    with pytest.raises(NoMatchingRule, match="No rules apply to CN=alice"):
        SslPrincipalMapper("RULE:^CN=bob$/b/").principal("CN=alice")


# Listeners


def certificates(name: str, protocol: str, **settings: str) -> ClientCertificates:
    texts = {name.replace("__", "."): text for name, text in settings.items()}
    return ClientCertificates(name, protocol, parse_broker_settings(texts)[0])


def test_a_listener_has_rules_of_its_own() -> None:
    settings = {"ssl.client.auth": "required", "listener.name.other.ssl.client.auth": "requested"}
    settings["listener.name.other.ssl.principal.mapping.rules"] = "RULE:^CN=(.*)$/$1/U"
    values, _ = parse_broker_settings(settings)
    assert ClientCertificates("SSL", "SSL", values).client_auth == "required"
    assert ClientCertificates("SSL", "SSL", values).principal(ALICE) == Principal("User", "CN=alice")
    assert ClientCertificates("OTHER", "SSL", values).client_auth == "requested"
    assert ClientCertificates("OTHER", "SSL", values).principal(ALICE) == Principal("User", "ALICE")


def test_a_listener_with_sasl_asks_for_certificates_only_where_it_says_so_itself() -> None:
    """ChannelBuilders: the setting of all listeners applies to SSL alone."""
    settings = {"ssl.client.auth": "required", "listener.name.other.ssl.client.auth": "required"}
    values, _ = parse_broker_settings(settings)
    assert ClientCertificates("SASL_SSL", "SASL_SSL", values).client_auth == "none"
    assert ClientCertificates("OTHER", "SASL_SSL", values).client_auth == "required"


def test_without_a_certificate_the_principal_is_anonymous() -> None:
    assert certificates("SSL", "SSL").principal(None) == ANONYMOUS


def test_a_certificate_without_a_name_is_not_served() -> None:
    """DefaultKafkaPrincipalBuilder raises, and the connection is closed."""
    rules = certificates("SSL", "SSL", ssl__principal__mapping__rules="RULE:^CN=bob$/b/")
    with pytest.raises(NoPrincipal, match="Failed to map name for 'CN=alice'"):
        rules.principal(ALICE)


def test_rules_are_checked_at_the_start() -> None:
    with pytest.raises(TidegaugeError, match=r"ssl\.principal\.mapping\.rules: Invalid rule: `default`"):
        certificates("SSL", "SSL", ssl__principal__mapping__rules="default")
