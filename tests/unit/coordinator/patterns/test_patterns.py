"""Regular expressions of subscriptions: RE2's syntax, whole matches, bounded time (KIP-848; RE2/J in Kafka)."""

import random
import re

import pytest

from tidegauge_broker.coordinator.patterns import automaton
from tidegauge_broker.coordinator.patterns.automaton import (
    MatchingTooLongError,
    Pattern,
    PatternError,
    resolve,
)

NAMES = ("t4", "t5", "T4", "topic-1", "__consumer_offsets", "a.b", "k", "s", "abab", "foo_bar", "7")


@pytest.mark.parametrize(
    ("regex", "matched"),
    [
        ("t[45]", "t4 t5"),
        ("(^t[45])", "t4 t5"),
        ("t", ""),
        ("__consumer_.*", "__consumer_offsets"),
        ("(?i)t4", "t4 T4"),
        ("(?i:T)4", "t4 T4"),
        ("(?-i)t4", "t4"),
        ("(?i)\u212a|\u017f", "k s"),
        (r"[[:alpha:]]\d", "t4 t5 T4"),
        ("[[:^alpha:]]", "7"),
        (r"\pL\pN", "t4 t5 T4"),
        (r"\p{Latin}\p{^Latin}|\p{Greek}", "t4 t5 T4"),
        (r"\w+\.\w", "a.b"),
        (r"\Qa.b\E", "a.b"),
        (r"\x{74}4|\1644|t\065", "t4 t5"),
        ("(ab){2}", "abab"),
        ("(?:ab){1,}?", "abab"),
        ("a{2|a{,2}", ""),
        ("(?P<x>t)(?<y>4)", "t4"),
        (r"\btopic\b-\d\z", "topic-1"),
        (r"foo\Bbar|foo_\Bbar$", "foo_bar"),
        ("[^a-z_].*", "T4 7"),
        ("[]a]b?", ""),
        (r"[\d.-]", "7"),
        ("", ""),
        (".*", " ".join(NAMES)),
    ],
)
def test_an_expression_matches_whole_names(regex, matched):
    assert resolve([regex], NAMES) == {regex: frozenset(matched.split())}


@pytest.mark.parametrize(
    ("regex", "why"),
    [
        ("^(?!t5).*$", "invalid or unsupported Perl syntax"),
        ("(?<=a)b", "invalid or unsupported Perl syntax"),
        ("(?x)a", "invalid or unsupported Perl syntax"),
        ("(?P<a-b>c)", "invalid named capture"),
        ("(?P<a>b)(?P<a>c)", "duplicate capture group name"),
        ("t(4", "missing closing )"),
        ("t4)", "missing closing )"),
        ("t[4", "missing closing ]"),
        ("[z-a]", "invalid character class range"),
        ("[[:word:][:none:]]", "invalid character class range"),
        (r"\p{Klingon}", "invalid character class range"),
        (r"\p", "invalid character class range"),
        (r"(a)\1", "invalid escape sequence"),
        (r"\x{110000}", "invalid escape sequence"),
        (r"\y", "invalid escape sequence"),
        ("a\\", "trailing backslash at end of expression"),
        ("a**", "invalid nested repetition operator"),
        ("a{2}{3}", "invalid nested repetition operator"),
        ("*a", "missing argument to repetition operator"),
        ("a|+", "missing argument to repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("a{3,2}", "invalid repeat count"),
        ("a{99999999999999999999}", "invalid repeat count"),
        ("((a{100}){100}){100}", "expression is too large"),
        ("(" * 5_000 + ")" * 5_000, "expression nests too deeply"),
    ],
)
def test_what_re2_does_not_know_is_refused_in_its_words(regex, why):
    with pytest.raises(PatternError) as refusal:
        Pattern(regex)
    assert str(refusal.value) == why


@pytest.mark.parametrize(
    ("regex", "name", "is_match"),
    [
        (".", "\n", False),
        ("(?s).", "\n", True),
        ("[^a]", "\n", True),
        ("a$\n^b", "a\nb", False),
        ("(?m)a$\n^b", "a\nb", True),
        (r"\w", "\u00e9", False),
        (r"\W\pL\p{Lu}", "\u00e9\u00e9\u00c9", True),
        (r"\p{Greek}\p{Cyrillic}\p{Han}\p{Latin}", "\u03c9\u0436\u65e5\u00e9", True),
        (r"\p{Common}+", "1-\u3001", True),
        ("(?i)\u00e9\u03a9", "\u00c9\u2126", True),
        (r"(?i)\W", "\u212a", False),
        (r"(?i)[[:upper:]]\p{Lu}", "ab", True),
        (r"(?i)\p{Ll}", "A", False),
        (r"(?i)[^\d_]", "\u00c5", True),
        ("\\\u00e9", "\u00e9", True),
        ("payments (eu|us) .", "payments eu \u65e5", True),
    ],
)
def test_names_of_any_characters_match_as_in_re2j(regex, name, is_match):
    """Transactional ids have more characters than topics; the results come from RE2/J 1.8."""
    assert Pattern(regex).matches(name) == is_match


def test_expressions_at_which_backtracking_never_ends_are_matched_in_time():
    """The work grows with the name, not with the ways to match it."""
    for regex in ("(a*)*(a|aa)*b", "(a|a)*c", "(a?){120}a{120}"):
        pattern = Pattern(regex)
        assert not pattern.matches("a" * 249)
        assert pattern.work < 300_000


def test_the_work_is_limited():
    with pytest.raises(MatchingTooLongError):
        Pattern("(a|b|c)*d", max_work=10).matches("abcabc")


def test_the_limit_is_one_for_all_expressions_of_a_group(monkeypatch):
    monkeypatch.setattr(automaton, "MAX_WORK", 60)
    assert resolve(["t.*"], NAMES)
    with pytest.raises(MatchingTooLongError):
        resolve([f"t{number}.*" for number in range(50)], NAMES)


def _random_regex(rng: random.Random, depth: int) -> str:
    def inner() -> str:
        return _random_regex(rng, depth - 1)

    kind = rng.randrange(8 if depth else 2)
    if kind == 0:
        return rng.choice("abc_-1")
    if kind == 1:
        return rng.choice([".", "[ab]", "[^a]", r"\w", r"\d", r"\W", "[a-c1]", r"\.", r"[\d_]"])
    if kind == 2:
        return f"(?:{inner()}|{inner()})"
    if kind == 3:
        return f"(?:{inner()})" + rng.choice(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?"])
    if kind == 4:
        return f"({inner()})"
    if kind == 5:
        return inner() + rng.choice([r"\b", r"\B", "^", "$"]) + inner()
    return inner() + inner()


def test_where_python_has_the_same_syntax_the_matches_are_the_same():
    rng = random.Random(848)
    compared = 0
    while compared < 4_000:
        regex = _random_regex(rng, 4)
        reference, pattern = re.compile(regex, re.ASCII), Pattern(regex)
        for _ in range(5):
            name = "".join(rng.choice("abc._-1") for _ in range(rng.randrange(1, 7)))
            assert pattern.matches(name) == bool(reference.fullmatch(name)), (regex, name)
            compared += 1
