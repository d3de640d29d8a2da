"""How tokens are chosen, over HTTP and with the real small model: each field does what it says."""

import json
import re
from typing import Any

import pytest

from tests.replica.conftest import Replica

pytestmark = [pytest.mark.model, pytest.mark.processes]

PROMPT = [504, 3575, 282, 4649, 314]
FREE = {"repetition_penalty": 1.0, "ignore_eos": True}


def ids(replica: Replica, prompt: list[int] = PROMPT, **fields: Any) -> list[int]:
    answer = replica.complete(prompt, **{"max_tokens": 16, **FREE, **fields})
    return list(answer["choices"][0]["token_ids"])


def text(replica: Replica, **fields: Any) -> str:
    answer = replica.complete("Answer: ", max_tokens=200, **fields)
    assert answer["choices"][0]["finish_reason"] == "stop"
    return str(answer["choices"][0]["text"])


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"min_p": 1.0}, {"top_p": 1e-6}])
def test_a_draw_from_one_token_is_the_likeliest(replica: Replica, narrow: dict[str, Any]) -> None:
    drawn = ids(replica, temperature=1.5, **({"top_p": 1.0} | narrow))
    assert drawn == ids(replica)


@pytest.mark.parametrize("wide", [{"top_k": -1}, {"top_k": 0}, {"min_p": 0.0}])
def test_no_limit_is_no_limit(replica: Replica, wide: dict[str, Any]) -> None:
    how: dict[str, Any] = {"temperature": 1.5, "top_p": 1.0, "seed": 5, "top_k": 0}
    assert ids(replica, **how | wide) == ids(replica, **how)


def test_a_seed_draws_the_same_again_and_another_seed_does_not(replica: Replica) -> None:
    how: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0}
    assert ids(replica, **how, seed=-7) == ids(replica, **how, seed=-7)
    assert ids(replica, **how, seed=-7) != ids(replica, **how, seed=8)
    assert ids(replica, **how) != ids(replica, **how)


def test_a_bias_forces_a_token_or_forbids_it(replica: Replica) -> None:
    first = ids(replica)[0]
    assert set(ids(replica, logit_bias={"1234": 100})) == {1234}
    assert first not in ids(replica, logit_bias={str(first): -100})


@pytest.mark.parametrize("penalty", ["presence_penalty", "frequency_penalty"])
def test_presence_and_frequency_look_at_the_reply_alone(replica: Replica, penalty: str) -> None:
    prompt = PROMPT + ids(replica)  # where everything that would be said has been said
    free = ids(replica, prompt, max_tokens=64)
    held = ids(replica, prompt, max_tokens=64, **{penalty: 2.0})
    assert held[0] == free[0]
    assert held != free


def test_repetition_looks_at_the_prompt_as_well(replica: Replica) -> None:
    prompt = 6 * PROMPT
    first = ids(replica, prompt)[0]
    assert first in PROMPT
    assert ids(replica, prompt, repetition_penalty=2.0)[0] != first


def test_a_loop_is_ended_where_the_request_or_the_model_asks(replica: Replica) -> None:
    loop = {"logit_bias": {"1234": 100}, "max_tokens": 100, **FREE}
    own = replica.complete(PROMPT, **loop)["choices"][0]
    assert (own["finish_reason"], len(own["token_ids"])) == ("repetition", 32)
    assert own["stop_reason"] == "repetition_detected"
    rule = {"max_pattern_size": 3, "min_count": 5}
    asked = replica.complete(PROMPT, repetition_detection=rule, **loop)["choices"][0]
    assert (asked["finish_reason"], len(asked["token_ids"])) == ("repetition", 5)
    off = replica.complete(PROMPT, repetition_detection={}, **loop)["choices"][0]
    assert (off["finish_reason"], len(off["token_ids"])) == ("length", 100)


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"enum": [7, 42]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize(
    "asked",
    [
        {"structured_outputs": {"json": PERSON}},
        {"structured_outputs": {"json": json.dumps(PERSON)}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "p", "schema": PERSON},
            }
        },
    ],
)
def test_a_schema_is_kept(replica: Replica, asked: dict[str, Any], temperature: float) -> None:
    # The seed is one with which the model comes to an end.
    said = json.loads(text(replica, **asked, temperature=temperature, seed=1))
    assert set(said) == {"name", "age"}
    assert isinstance(said["age"], int)


def test_an_object_is_an_object(replica: Replica) -> None:
    limit = {"logit_bias": {"18": 0}}  # something else beside it is no hindrance
    for asked in (
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json_object": True}},
    ):
        assert isinstance(json.loads(text(replica, **asked, **limit)), dict)


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_choice_regex_and_grammar_are_kept(replica: Replica, temperature: float) -> None:
    how = {"temperature": temperature}
    choices = ["perhaps", "yes, 😀", "no\nnever"]
    assert text(replica, structured_outputs={"choice": choices}, **how) in choices
    pattern = "[A-Z]{2}-[0-9]{3,5}"
    assert re.fullmatch(pattern, text(replica, structured_outputs={"regex": pattern}, **how))
    grammar = 'root ::= "<" [a-z] [a-z] ">"'
    said = text(replica, structured_outputs={"grammar": grammar}, **how)
    assert re.fullmatch("<[a-z]{2}>", said)


def test_plain_text_is_no_form(replica: Replica) -> None:
    assert ids(replica, response_format={"type": "text"}) == ids(replica)


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("structured_outputs", {"structured_outputs": {}}),
        ("structured_outputs", {"structured_outputs": {"json": {}, "regex": "a"}}),
        ("structured_outputs", {"structured_outputs": {"structural_tag": "{}"}}),
        ("structured_outputs", {"structured_outputs": {"regex": "("}}),
        ("structured_outputs", {"structured_outputs": {"choice": []}}),
        ("structured_outputs", {"structured_outputs": {"grammar": "start: nowhere"}}),
        ("structured_outputs", {"structured_outputs": {"json": "{"}}),
        ("response_format", {"response_format": {"type": "json_schema"}}),
        ("response_format", {"response_format": {"type": "structural_tag"}}),
        (
            "response_format",
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "?"}}}},
        ),
        ("ignore_eos", {"structured_outputs": {"regex": "a"}, "ignore_eos": True}),
        ("logit_bias", {"logit_bias": {"49152": 1}}),
        ("logit_bias", {"logit_bias": {"a": 1}}),
        ("logit_bias", {"logit_bias": {"1": 101}}),
        ("logit_bias", {"logit_bias": {str(n): 1 for n in range(1025)}}),
        ("top_k", {"top_k": -2}),
        ("min_p", {"min_p": 1.5}),
        ("presence_penalty", {"presence_penalty": 2.5}),
        ("frequency_penalty", {"frequency_penalty": "much"}),
        ("repetition_detection", {"repetition_detection": {"max_pattern_size": 3}}),
        ("repetition_detection", {"repetition_detection": {"max_pattern_size": 129}}),
        ("repetition_detection", {"repetition_detection": {"min_pattern_size": 1}}),
    ],
)
def test_what_cant_be_done_is_a_400_that_names_the_field(
    replica: Replica, field: str, asked: dict[str, Any]
) -> None:
    answer = replica.client.post("/v1/completions", json={"prompt": [504], **asked})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
