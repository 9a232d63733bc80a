"""Patterns have Java's meaning: the verdicts come from ``java.util.regex.Matcher.matches()`` of a JDK 17."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge_broker.security.java_patterns import compiled

MATCHES = [
    ("(?i)^CN=kafka,.*$", "cn=KAFKA,O=x"),
    (r"CN=(\w+)", "CN=abc_1"),
    (r"CN=a\sb", "CN=a\x0bb"),
    ("(?s)CN=.*", "CN=a\rb"),
    ("CN=[^,]*$", "CN=a\n"),
    ("CN=a$\r", "CN=a\r"),
    ("CN=a$\n", "CN=a\n"),
    ("CN=a$\r\n", "CN=a\r\n"),
    ("CN=a\\Z\u2028", "CN=a\u2028"),
    (r"CN=a\z", "CN=a"),
    (r"CN=a\b,O=x", "CN=a,O=x"),
    ("CN=[]a]+", "CN=]a"),
    ("CN=[^]a]+", "CN=b"),
    ("CN=a{2}", "CN=aa"),
    ("CN=a{1,}+", "CN=aa"),
    ("CN=(?>a+)b", "CN=aab"),
    ("CN=(?i:A)b", "CN=ab"),
    ("(?i)CN=(?-i:A)b", "cn=AB"),
    (r"CN=\x41", "CN=A"),
    (r"CN=\u0041", "CN=A"),
    (r"CN=(a)\1", "CN=aa"),
    ("CN=[.]", "CN=."),
    (r"CN=\.", "CN=."),
    ("CN=a#b", "CN=a#b"),
    ("CN=a|b", "CN=a"),
    (r"CN=\-\,", "CN=-,"),
    (r"CN=\_", "CN=_"),
    ("CN=\U0001f600.", "CN=\U0001f600\U0001f600"),
    ("CN=a}", "CN=a}"),
    ("CN=a]", "CN=a]"),
    ("CN=a++", "CN=a"),
    ("CN=[&]", "CN=&"),
    (r"CN=a\/b", "CN=a/b"),
]
DOES_NOT = [
    ("(?i)^CN=kafka,.*$", "CN=\u212aafka,O=x"),
    (r"CN=(\w+)", "CN=\u0430bc"),
    (r"CN=\d+", "CN=\u0663"),
    (r"CN=a\sb", "CN=a\xa0b"),
    ("CN=.*", "CN=a\rb"),
    ("CN=.*", "CN=a\u2028b"),
    ("CN=.*", "CN=a\x85b"),
    ("CN=.*", "CN=a\nb"),
    ("CN=a\r$\n", "CN=a\r\n"),
    ("CN=a$b", "CN=ab"),
    ("CN=(?i:A)b", "CN=aB"),
    ("(?i)CN=[j-l]", "CN=\u212a"),
    ("(?i)CN=\xe9", "CN=\xc9"),
    (r"CN=[\w]+", "CN=\u0430"),
    ("CN=[.]", "CN=a"),
]
REFUSED = [
    "CN=[a-z&&[^b]]",
    "CN=a{,3}",
    "CN={x}",
    "CN=(?P<n>a)",
    "CN=(?<n>a)",
    "CN=a(?i)B",
    "(?u)(?i)CN=k",
    r"CN=\v",
    r"CN=\012",
    r"CN=\U00000041",
    r"CN=\N{LATIN SMALL LETTER A}",
    "CN=[[:alpha:]]",
    "CN=[a[b]]",
    r"CN=\p{L}+",
    r"CN=\Qa.b\E",
    r"CN=\e",
    r"CN=[\b]",
    r"CN=\y",
    "CN=(?m)a$",
    "CN=[a&&b]",
    "CN=[a--b]",
    "CN=(?#x)a",
    "CN=(a)(?(1)b)",
    r"CN=\0",
    r"CN=\07",
    "CN=(",
    "CN=[a",
    "CN=a**",
]
"""Patterns that Java or Python does not know, or that mean something else to each."""


@pytest.mark.parametrize(("pattern", "text"), MATCHES)
def test_what_java_matches_matches(pattern: str, text: str) -> None:
    assert compiled(pattern).fullmatch(text)


@pytest.mark.parametrize(("pattern", "text"), DOES_NOT)
def test_what_java_does_not_match_does_not_match(pattern: str, text: str) -> None:
    assert not compiled(pattern).fullmatch(text)


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_pattern_that_could_mean_something_else_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        compiled(pattern)


@given(st.text(st.sampled_from("CN=(?i:s)[^a-z]{1,2}.*+?$|&&--\\dwZzbpQ<P!>")))
def test_any_text_is_a_pattern_or_refused(pattern: str) -> None:
    with contextlib.suppress(ValueError):
        compiled(pattern)
