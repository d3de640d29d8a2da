"""Replies of a given form: what may follow, and that no grammar can end or stall the engine."""

import json
import re
import subprocess
import sys
import time
from typing import Any

import pytest

from tertulia.replica.constraint import (
    MAX_CHARS,
    MAX_CHOICES,
    MAX_DEPTH,
    MAX_LINKS,
    ConstraintRefused,
    Constraints,
    Kind,
)
from tertulia.replica.generation import Emission, Generation
from tertulia.replica.model import Choice, Stuck
from tests.replica.conftest import ROOT
from tests.replica.fake_model import END, FakeModel, engine_over

CONSTRAINTS = Constraints(FakeModel())  # whose tokens are bytes


def allowed(kind: Kind, source: Any, reply: bytes) -> set[int]:
    """The tokens that may follow."""
    biases = CONSTRAINTS.compile(kind, source).biases(list(reply))
    named = {token for token, _ in biases}
    if biases[0][1] > 0:
        return named
    return set(range(258)) - named


@pytest.mark.parametrize(
    ("kind", "source", "reply", "next_bytes"),
    [
        ("choice", ["yes", "no"], b"", b"yn"),
        ("choice", ["yes", "yellow"], b"ye", b"sl"),
        ("choice", ['a "quoted"\n\\ +(é'], b'a "quoted"\n\\ +(', "é".encode()[:1]),
        ("regex", "[0-9]{2}-x", b"12", b"-"),
        ("grammar", 'root ::= "a" [b-c]', b"a", b"bc"),
        ("grammar", 'start: "a" /[b-c]/', b"a", b"bc"),
        ("json", {"type": "object"}, b"{", b'"} \n\r\t'),
        ("json", '{"type": "boolean"}', b"t", b"r"),
    ],
)
def test_only_what_may_follow_is_left(
    kind: Kind, source: Any, reply: bytes, next_bytes: bytes
) -> None:
    assert allowed(kind, source, reply) == set(next_bytes)


def test_the_end_is_allowed_where_the_reply_is_complete_and_nowhere_else() -> None:
    assert END in allowed("choice", ["yes", "yes, please"], b"yes")
    assert END not in allowed("choice", ["yes", "yes, please"], b"yes,")
    assert allowed("choice", ["yes"], b"yes") == {END}


def test_it_says_the_same_for_a_reply_whatever_it_was_asked_before() -> None:
    asked = CONSTRAINTS.compile("regex", "(ab)+c")
    fresh = [
        CONSTRAINTS.compile("regex", "(ab)+c").biases(list(reply)) for reply in (b"", b"a", b"abab")
    ]
    for place in (0, 1, 2, 1, 0, 2, 2):
        assert asked.biases(list((b"", b"a", b"abab")[place])) == fresh[place]


def test_a_reply_of_another_form_is_stuck_and_does_not_spoil_the_next_question() -> None:
    asked = CONSTRAINTS.compile("regex", "ab")
    with pytest.raises(Stuck):
        asked.biases(list(b"x"))
    assert asked.biases(list(b"a")) == CONSTRAINTS.compile("regex", "ab").biases(list(b"a"))


def test_a_stuck_reply_ends_with_an_error_and_the_others_go_on() -> None:
    said: list[Emission] = []
    engine = engine_over(FakeModel(), said.extend)
    free = Choice(temperature=0, top_p=1, repetition_penalty=1, seed=0)
    held = Choice(0, 1, 1, 0, constraint=CONSTRAINTS.compile("regex", "[A-Z]+"))
    first = engine.submit(Generation("a", (1, 2), 5, held))  # the fake model says small letters
    second = engine.submit(Generation("b", (1, 2), 5, free))
    while engine.step():
        pass
    assert [one.finish for one in said if one.key == first] == [None, "error"]
    assert [one.finish for one in said if one.key == second][-1] == "length"
    assert engine.counts().n_running == 0


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def chain(n_links: int, link: str) -> str:
    """A schema whose definitions lead one to the next."""
    links = {f"a{n}": json.loads(link.replace("NEXT", f"#/$defs/a{n + 1}")) for n in range(n_links)}
    last = {f"a{n_links}": {"type": "string"}}
    return json.dumps({"$ref": "#/$defs/a0", "$defs": links | last})


def rules(n_rules: int, rule: str) -> str:
    lines = [f"r{n}: {rule.format(f'r{n + 1}')}" for n in range(n_rules)]
    return "\n".join(["start: r0", *lines, f'r{n_rules}: "b"'])


REF = '{"$ref": "NEXT"}'
TOO_MUCH: list[tuple[Kind, Any]] = [
    ("json", "x" * (MAX_CHARS + 1)),
    ("regex", "x" * (MAX_CHARS + 1)),
    ("grammar", 'start: "' + "x" * MAX_CHARS + '"'),
    ("choice", [str(n) for n in range(MAX_CHOICES + 1)]),
    ("choice", []),
    ("json", nested(MAX_DEPTH)),
    ("json", "[" * 10_000),
    ("json", chain(MAX_LINKS + 1, REF)),
    ("json", {"$ref": "#"}),
    ("json", chain(1, '{"$ref": "#/$defs/a0"}')),
    ("json", {"$ref": "http://127.0.0.1:9/a.json"}),
    ("json", {"$ref": "file:///etc/passwd"}),
    ("json", {"type": "nonsense"}),
    ("json", {"type": "integer", "minimum": 5, "maximum": 4}),
    ("json", {"not": {"type": "string"}}),
    ("json", '{"type": "string", "minLength": 1e999}'),
    ("json", "{"),
    ("json", {"type": "\ud800"}),
    ("regex", "("),
    ("regex", "(" * 5_000 + "a" + ")" * 5_000),
    ("regex", "a" + "*" * 10_000),
    ("regex", "(?=a)b"),
    ("regex", r"(a)\1"),
    ("regex", r"[^\x00-\U0010FFFF]"),
    ("regex", "\udfff"),
    ("grammar", ""),
    ("grammar", "start: nowhere"),
    ("grammar", "root ::= nowhere"),
    ("grammar", 'root ::= "a'),
    ("grammar", "root ::= " + "(" * 3_000),
    ("grammar", "start: " + "(" * 4_000 + '"a"' + ")" * 4_000),
    ("grammar", rules(MAX_LINKS + 1, '{} | "a"')),
    ("grammar", "start: <[999999]>"),
    ("grammar", "%import .other.words\nstart: words"),
    ("choice", ["\udfff"]),
]

# These are read; what they may cost is bounded, and some end their own reply.
HOSTILE: list[tuple[Kind, Any]] = [
    ("json", nested(MAX_DEPTH - 2)),
    ("json", chain(MAX_LINKS - 1, REF)),
    ("json", chain(90, '{"allOf": [{"$ref": "NEXT"}, {"$ref": "NEXT"}]}')),
    ("json", chain(90, '{"anyOf": [{"$ref": "NEXT"}, {"type": "array", "items": {"$ref": "#"}}]}')),
    ("json", {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(400)}}),
    ("json", {"type": "string", "pattern": "^(a+)+$"}),
    ("json", {"type": "string", "minLength": 1_000_000}),
    ("json", {"type": "array", "items": {"type": "string"}, "minItems": 1_000_000}),
    ("json", {"enum": ["x" * 50 + str(n) for n in range(200)]}),
    ("regex", "((((a{1,100}){1,100}){1,100}){1,100})"),
    ("regex", ".*a.{30}b.{30}c"),
    ("regex", "(a*)*b"),
    ("regex", r"\p{L}{1,500}"),
    ("grammar", 'start: start "a" | start start | "b"'),
    ("grammar", "start: x\nx: x x x x | "),
    ("grammar", 'start: "a" start'),
    ("grammar", rules(MAX_LINKS - 5, '{} | "a"')),
    ("grammar", rules(MAX_LINKS - 5, '({})? "a"')),
    ("grammar", 'start: ((("a"{1,1000}){1,1000}){1,1000})'),
    (
        "grammar",
        "start: x*\nx: " + " | ".join(f"x{n}" for n in range(90))
        + "\n" + "\n".join(f'x{n}: "a" x' for n in range(90)),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "source"), TOO_MUCH)
def test_what_cant_be_read_or_is_too_much_is_refused_in_words_of_ours(
    kind: Kind, source: Any
) -> None:
    with pytest.raises(ConstraintRefused) as refusal:
        CONSTRAINTS.compile(kind, source)
    assert 0 < len(str(refusal.value)) <= 250
    assert not re.search("passwd|nowhere", str(refusal.value))


def try_hostile() -> int:
    """Compiles each and takes some tokens; prints how long the longest call kept the processor.

    What other programs take meanwhile is not in it.
    """
    longest_s = 0.0
    for kind, source in HOSTILE:
        began_s = time.process_time()
        asked = CONSTRAINTS.compile(kind, source)
        longest_s = max(longest_s, time.process_time() - began_s)
        reply: list[int] = []
        try:
            for number in range(40):
                began_s = time.process_time()
                biases = asked.biases(reply)
                longest_s = max(longest_s, time.process_time() - began_s)
                named = {token for token, _ in biases}
                left = named if biases[0][1] > 0 else set(range(258)) - named
                reply.append(sorted(left - {END} or left)[number % 3 % len(left - {END} or left)])
                if reply[-1] == END:
                    break
        except Stuck:
            continue
    print(json.dumps(longest_s))
    return 0


@pytest.mark.processes
def test_no_grammar_ends_the_process_or_holds_a_step_up() -> None:
    # In a child, so that a crash is a failure of this test alone.
    ended = subprocess.run(
        [sys.executable, "-c", "from tests.replica.test_constraint import *; try_hostile()"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=50,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) < 2  # measured: 0.05 s
