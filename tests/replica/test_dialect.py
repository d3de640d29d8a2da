"""Bodies that are wrong all over: the refusal costs little, is short, and repeats nothing."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from tertulia.replica.dialect import (
    NAME_CHARS,
    AbortBody,
    BadRequest,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    TokenizeBody,
    read_body,
)

WRONG = [None] * 5_000
MESSAGE: dict[str, Any] = {"role": "user", "content": WRONG}
NAMES = dict.fromkeys(map(str, range(-6_000, -1)), 1)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (CompletionBody, {"prompt": WRONG}),
        (CompletionBody, {"prompt": "a", "stop": WRONG}),
        (CompletionBody, {"prompt": "a", "logit_bias": NAMES}),
        (CompletionBody, {"prompt": "a", "structured_outputs": {"choice": WRONG}}),
        (ChatBody, {"messages": WRONG}),
        (ChatBody, {"messages": [MESSAGE]}),
        (ChatBody, {"messages": [MESSAGE | {"content": ""}], "tools": WRONG}),
        (TokenizeBody, {"messages": WRONG}),
        (DetokenizeBody, {"tokens": WRONG}),
        (AbortBody, {"request_ids": WRONG}),
    ],
)
def test_of_a_body_full_of_mistakes_only_the_first_ones_are_looked_for(
    kind: type[BaseModel], body: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError) as refused:
        kind.model_validate_json(json.dumps(body))
    assert refused.value.error_count() <= 2  # one for each kind a field may be of


@pytest.mark.parametrize(
    "fields", [{"logit_bias": {"canary " * 9_000: 1}}, {"structured_outputs": {"x" * 70_000: 1}}]
)
def test_a_refusal_is_short_whatever_names_the_body_has(fields: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as refused:
        read_body(CompletionBody, json.dumps({"prompt": "a", **fields}).encode())
    assert len(str(refused.value)) < 100 + NAME_CHARS
    assert "canary" not in str(refused.value)
    assert refused.value.field in fields
