"""The contract of a replica: one list of checks that every engine we name must keep.

A check sees only HTTP. Texts are never compared between engines, whose arithmetic differs.
"""

import json
import re
import uuid
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import httpx2
import openai
import pytest

from tests.contract.engines import METRICS, Engine

PROMPT = "Once upon a time there was a"
GREEDY = {"temperature": 0, "ignore_eos": True}
CHAT = [{"role": "user", "content": "What is the capital of France? Answer briefly."}]
ANSWER_S = 120.0  # of an engine on a slow machine
POLLS, POLL_S = 600, 0.1

Check = Callable[[Engine], None]
CHECKS: list[tuple[str | None, Check]] = []


def needs(claim: str | None) -> Callable[[Check], Check]:
    """Puts a check on the list, for the engines that claim this; None is for all."""

    def listed(check: Check) -> Check:
        CHECKS.append((claim, check))
        return check

    return listed


def post(engine: Engine, path: str, body: dict[str, Any], **headers: str) -> httpx2.Response:
    whole = {"model": engine.model} | body
    return engine.http.post(path, json=whole, headers=headers or None)


def complete(engine: Engine, **body: Any) -> dict[str, Any]:
    answer = post(engine, "/v1/completions", {"prompt": PROMPT, "max_tokens": 8, **GREEDY, **body})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def chat(engine: Engine, **body: Any) -> dict[str, Any]:
    asked = {"messages": CHAT, "max_tokens": 16, "temperature": 0, **body}
    answer = post(engine, "/v1/chat/completions", asked)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def chunks(engine: Engine, path: str, **body: Any) -> list[dict[str, Any]]:
    """The documents of a stream, which ends with the end mark and only there."""
    asked = {"model": engine.model, "stream": True, "max_tokens": 8, **GREEDY, **body}
    with engine.http.stream("POST", path, json=asked) as answer:
        assert answer.status_code == 200, answer.read()
        lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def fresh_prompt() -> str:
    """A prompt that no engine has seen."""
    return f"{uuid.uuid4().hex} " + "and then there were many more words to read " * 12


def metric(engine: Engine, name: str) -> float:
    lines = engine.http.get("/metrics").text.splitlines()
    values = [
        float(line.split()[-1]) for line in lines if re.match(re.escape(name) + r"[{ ]", line)
    ]
    assert values, f"there is no metric {name}"
    return sum(values)


def wait_for(condition: Callable[[], bool]) -> None:
    pause = Event()
    for _ in range(POLLS):
        if condition():
            return
        pause.wait(POLL_S)
    raise AssertionError("it did not happen")


@needs(None)
def health_is_open_and_well(engine: Engine) -> None:
    assert engine.http.get("/health").status_code == 200


@needs("ping")
def ping_is_health(engine: Engine) -> None:
    assert engine.http.get("/ping").status_code == 200
    assert engine.http.post("/ping").status_code == 200


@needs("version")
def the_version_is_told(engine: Engine) -> None:
    assert engine.http.get("/version").json()["version"]


@needs(None)
def the_model_is_listed(engine: Engine) -> None:
    listed = engine.http.get("/v1/models").json()
    assert listed["object"] == "list"
    assert engine.model in [card["id"] for card in listed["data"]]


@needs(None)
def a_reply_has_as_many_tokens_as_asked_and_says_so(engine: Engine) -> None:
    answer = complete(engine, max_tokens=5)
    assert answer["object"] == "text_completion"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + 5


@needs(None)
def a_stream_has_one_finish_then_its_usage_then_the_end_mark(engine: Engine) -> None:
    asked = {"prompt": PROMPT, "stream_options": {"include_usage": True}}
    seen = chunks(engine, "/v1/completions", **asked)
    finishes = [one["choices"][0]["finish_reason"] for one in seen if one["choices"]]
    assert finishes[-1] == "length"
    assert set(finishes[:-1]) <= {None}
    assert seen[-1]["usage"]["completion_tokens"] == 8
    assert len({one["id"] for one in seen}) == 1


@needs(None)
def a_stop_string_ends_the_text_before_it(engine: Engine) -> None:
    stop = complete(engine)["choices"][0]["text"][4:7]
    choice = complete(engine, stop=[stop])["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert stop not in choice["text"]


@needs("token ids")
def ids_go_in_and_come_out_and_none_is_lost_in_a_stream(engine: Engine) -> None:
    ids = [504, 2644, 282]
    whole = complete(engine, prompt=ids, return_token_ids=True)
    assert len(whole["choices"][0]["token_ids"]) == whole["usage"]["completion_tokens"] == 8
    assert whole["usage"]["prompt_tokens"] == 3
    seen = chunks(engine, "/v1/completions", prompt=ids, return_token_ids=True)
    choices = [one["choices"][0] for one in seen if one["choices"]]
    assert choices[0]["prompt_token_ids"] == ids
    assert len([i for choice in choices for i in choice["token_ids"] or ()]) == 8


@needs("stream interval")
def a_stream_interval_makes_fewer_events_of_the_same_tokens(engine: Engine) -> None:
    asked = {"prompt": PROMPT, "max_tokens": 10, "return_token_ids": True, "stream_interval": 4}
    seen = chunks(engine, "/v1/completions", **asked)
    sizes = [len(one["choices"][0]["token_ids"] or ()) for one in seen if one["choices"]]
    assert [size for size in sizes if size] == [1, 4, 4, 1]


@needs("tokenize")
def text_becomes_ids_and_ids_the_same_text(engine: Engine) -> None:
    ids = post(engine, "/tokenize", {"prompt": "Ça va ? 🌧 12", "add_special_tokens": False})
    told = post(engine, "/detokenize", {"tokens": ids.json()["tokens"]})
    assert told.json()["prompt"] == "Ça va ? 🌧 12"
    assert ids.json()["count"] == len(ids.json()["tokens"])


@needs("cached tokens")
def a_prompt_that_was_read_is_not_read_again(engine: Engine) -> None:
    prompt = fresh_prompt()
    cached = [
        complete(engine, prompt=prompt, max_tokens=1)["usage"]["prompt_tokens_details"]
        for _ in range(2)
    ]
    assert (cached[0] or {}).get("cached_tokens", 0) < 16
    assert cached[1]["cached_tokens"] > 32


@needs("cache salt")
def another_salt_shares_nothing(engine: Engine) -> None:
    prompt = fresh_prompt()
    cached = [
        complete(engine, prompt=prompt, max_tokens=1, cache_salt=salt)["usage"][
            "prompt_tokens_details"
        ]["cached_tokens"]
        for salt in ("ada", "ada", "bob")
    ]
    assert cached[1] > 32
    assert (cached[0], cached[2]) == (0, 0)


@needs("priority")
def a_priority_is_taken(engine: Engine) -> None:
    for priority in (0, 5, -3):
        complete(engine, max_tokens=1, priority=priority)


@needs("request id")
def the_id_of_the_request_is_in_that_of_the_answer(engine: Engine) -> None:
    body = {"prompt": PROMPT, "max_tokens": 1}
    answer = post(engine, "/v1/completions", body, **{"X-Request-Id": "turn-1"})
    assert answer.json()["id"].startswith("cmpl-turn-1")
    body = {"messages": CHAT, "max_tokens": 1}
    answer = post(engine, "/v1/chat/completions", body, **{"X-Request-Id": "turn-2"})
    assert answer.json()["id"] == "chatcmpl-turn-2"


@needs("request id echoed")
def the_id_of_the_request_comes_back_in_a_header(engine: Engine) -> None:
    body = {"prompt": PROMPT, "max_tokens": 1}
    answer = post(engine, "/v1/completions", body, **{"X-Request-Id": "turn-3"})
    assert answer.headers["x-request-id"] == "turn-3"


def long_stream(engine: Engine, request_id: str) -> Iterator[None]:
    """A reply under way, and then what is left of it."""
    asked = {"model": engine.model, "prompt": PROMPT, "max_tokens": 2000, "stream": True, **GREEDY}
    asked |= {"repetition_detection": {"max_pattern_size": 0}}
    with engine.http.stream(
        "POST", "/v1/completions", json=asked, headers={"X-Request-Id": request_id}
    ) as answer:
        lines = answer.iter_lines()
        while not next(lines).startswith("data: {"):
            pass
        yield
        assert sum(1 for line in lines if line.startswith("data: {")) < 1500


@needs("vllm metrics")
def a_client_that_leaves_ends_its_reply(engine: Engine) -> None:
    under_way = long_stream(engine, "leaves")
    next(under_way)
    assert metric(engine, "vllm:num_requests_running") == 1
    under_way.close()  # type: ignore[attr-defined]  # a generator's
    wait_for(lambda: metric(engine, "vllm:num_requests_running") == 0)


@needs("abort by id")
def a_reply_is_ended_by_its_id(engine: Engine) -> None:
    under_way = long_stream(engine, "ended")
    next(under_way)
    asked = {"request_ids": ["cmpl-ended", "cmpl-ended-0"]}  # vLLM numbers the prompts of a batch
    assert post(engine, "/inference/v1/abort_requests", asked).status_code == 200
    assert next(under_way, None) is None
    wait_for(lambda: metric(engine, "vllm:num_requests_running") == 0)


@needs("vllm metrics")
def the_figures_have_vllms_names(engine: Engine) -> None:
    complete(engine, max_tokens=2)
    lines = engine.http.get("/metrics").text.splitlines()
    names = {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")}
    assert [name for name in METRICS if name not in names] == []


@needs("top_k")
def a_draw_from_one_token_is_the_likeliest(engine: Engine) -> None:
    how = {"max_tokens": 1, "repetition_penalty": 1.0}
    likeliest = complete(engine, **how)["choices"][0]["text"]
    assert complete(engine, **how, top_k=1)["choices"][0]["text"] == likeliest
    assert complete(engine, **how, temperature=1.5, top_k=1)["choices"][0]["text"] == likeliest


@needs("logit bias")
def a_bias_forbids_a_token_or_forces_it(engine: Engine) -> None:
    forced = complete(engine, max_tokens=3, logit_bias={"1234": 100}, repetition_penalty=1.0)
    text = forced["choices"][0]["text"]
    assert text == text[: len(text) // 3] * 3 != ""


@needs("repetition")
def a_loop_ends_a_reply_that_asks_for_it(engine: Engine) -> None:
    rule = {"max_pattern_size": 3, "min_pattern_size": 1, "min_count": 5}
    bias = {"1234": 100}
    answer = complete(engine, max_tokens=40, logit_bias=bias, repetition_detection=rule)
    choice = answer["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("repetition", "repetition_detected")
    assert answer["usage"]["completion_tokens"] == 5


@needs("json schema")
def a_reply_keeps_to_a_schema(engine: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "big": {"type": "boolean"}},
        "required": ["city", "big"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    said = chat(engine, response_format=form, max_tokens=60)["choices"][0]["message"]["content"]
    assert set(json.loads(said)) == {"city", "big"}


@needs("choice")
def a_reply_is_one_of_the_choices(engine: Engine) -> None:
    asked = {"structured_outputs": {"choice": ["yes", "no"]}, "ignore_eos": False}
    assert complete(engine, **asked)["choices"][0]["text"] in ("yes", "no")


@needs("regex")
def a_reply_matches_the_pattern(engine: Engine) -> None:
    asked = {"structured_outputs": {"regex": "[A-Z]{2}-[0-9]{3}"}, "ignore_eos": False}
    said = complete(engine, **asked, max_tokens=30)["choices"][0]["text"]
    assert re.fullmatch("[A-Z]{2}-[0-9]{3}", said)


@needs("grammar")
def a_reply_keeps_to_the_grammar(engine: Engine) -> None:
    asked = {"structured_outputs": {"grammar": 'root ::= "<" [a-z] [a-z] ">"'}}
    said = complete(engine, **asked, max_tokens=30, ignore_eos=False)["choices"][0]["text"]
    assert re.fullmatch("<[a-z]{2}>", said)


@needs("choice")
def a_grammar_that_cant_be_read_is_a_400(engine: Engine) -> None:
    asked = {"prompt": PROMPT, "structured_outputs": {"regex": "("}}
    assert post(engine, "/v1/completions", asked).status_code == 400
    assert engine.http.get("/health").status_code == 200


@needs(None)
def a_chat_streams_its_role_first(engine: Engine) -> None:
    seen = chunks(engine, "/v1/chat/completions", messages=CHAT)
    deltas = [one["choices"][0]["delta"] for one in seen if one["choices"]]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content") or "" for delta in deltas)


@needs("chat continues")
def a_last_message_of_the_assistant_is_continued(engine: Engine) -> None:
    begun = {"role": "assistant", "content": "The capital of France is"}
    asked = {"messages": [*CHAT, begun], "add_generation_prompt": False}
    answer = chat(engine, **asked, continue_final_message=True, max_tokens=3)
    assert "Paris" in answer["choices"][0]["message"]["content"]


@needs("window")
def a_prompt_beyond_the_window_is_a_400(engine: Engine) -> None:
    answer = post(engine, "/v1/completions", {"prompt": "word " * 20_000, "max_tokens": 1})
    assert answer.status_code == 400


@needs(None)
def a_wrong_field_is_a_400_in_openais_form(engine: Engine) -> None:
    answer = post(engine, "/v1/chat/completions", {"messages": "Hi", "max_tokens": 1})
    assert answer.status_code in (400, 500 if engine.name == "llama-server" else 400)
    assert answer.json()["error"]["message"]


@needs("strict stream options")
def stream_options_without_a_stream_are_a_400(engine: Engine) -> None:
    asked = {"prompt": PROMPT, "stream_options": {"include_usage": True}}
    assert post(engine, "/v1/completions", asked).status_code == 400


@needs("model named")
def another_model_is_a_404(engine: Engine) -> None:
    asked = {"model": "gpt-9", "prompt": PROMPT, "max_tokens": 1}
    assert post(engine, "/v1/completions", asked).status_code == 404


def sdk(engine: Engine) -> openai.OpenAI:
    url = str(engine.http.base_url.join("/v1"))
    return openai.OpenAI(base_url=url, api_key="none", timeout=ANSWER_S, max_retries=0)


@needs(None)
def openais_library_reads_a_chat_and_its_stream(engine: Engine) -> None:
    with sdk(engine) as client:
        asked: Any = {"model": engine.model, "messages": CHAT, "max_tokens": 8, "temperature": 0}
        whole = client.chat.completions.create(**asked)
        assert whole.choices[0].message.content
        assert whole.usage is not None
        parts = client.chat.completions.create(**asked, stream=True)
        assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices)


@needs(None)
def openais_library_reads_a_completion_and_the_models(engine: Engine) -> None:
    with sdk(engine) as client:
        assert engine.model in [model.id for model in client.models.list()]
        said = client.completions.create(model=engine.model, prompt=PROMPT, max_tokens=4)
        assert said.choices[0].text


@needs("model named")
def openais_library_knows_the_errors(engine: Engine) -> None:
    with sdk(engine) as client, pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt-9", prompt=PROMPT)
