"""Reads a JSON body strictly: one meaning, bounded work, and no echo of what was sent.

It must never let a lone surrogate, a NUL, a duplicate key or a non-number into the lanes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails
from starlette.requests import Request

from tertulia.gateway.problems import Problem, invalid

# Longer integers are not numbers that any field takes; converting them costs quadratic time.
_INTEGER_DIGITS = 20
_FIELD_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}\Z")


class Body(BaseModel):
    """What every request body keeps to: known fields only, exact types, camelCase names."""

    model_config = ConfigDict(
        extra="forbid", strict=True, alias_generator=to_camel, populate_by_name=False
    )


Kind = TypeVar("Kind", bound=BaseModel)


async def read_body(request: Request, kind: type[Kind], *, empty: bytes = b"") -> Kind:
    """The request's body as `kind`; Problem names the first field that is wrong.

    `empty` stands in for a body that was not sent, where a call takes none as well.
    """
    raw = await request.body()
    if raw or not empty:
        _demand_json(request)
    value = parse_json(raw or empty)
    if not isinstance(value, dict):
        raise invalid("body", "The body must be a JSON object.")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise field_problem(error.errors(include_url=False, include_input=False)) from None


def parse_json(raw: bytes) -> Any:
    """The value of a JSON text; Problem where it is not plain JSON or too odd to be meant."""
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_no_duplicates,
            parse_constant=_no_constant,
            parse_int=_short_integer,
            parse_float=_finite,
        )
        _demand_clean(value, "body")
    except RecursionError:
        raise invalid("body", "The body is nested too deeply.") from None
    except ValueError:  # bad UTF-8 and bad JSON alike
        raise invalid("body", "The body is not valid JSON in UTF-8.") from None
    return value


def clean_text(text: str, field: str) -> str:
    """`text` itself; Problem when it holds NUL or half of a surrogate pair."""
    if "\x00" in text:
        raise invalid(field, f"The field {field} holds a NUL character.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise invalid(field, f"The field {field} holds half of a surrogate pair.") from None
    return text


def body_sha(fields: Mapping[str, Any]) -> str:
    """A hash of what a request means: the same for the same fields, however they were spaced."""
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def field_problem(errors: list[ErrorDetails]) -> Problem:
    """A 400 for the first of pydantic's errors, without the value that caused it."""
    error = errors[0]
    place = [str(part) for part in error["loc"] if part not in ("body", "query", "path", "header")]
    field = ".".join(part for part in place if _FIELD_NAME.match(part)) or "body"
    if error["type"] == "extra_forbidden":
        return invalid(field, f"There is no field {field} here.")
    if error["type"] == "missing":
        return invalid(field, f"The field {field} is missing.")
    return invalid(field, f"The field {field} is not valid: {error['msg'][:200]}.")


def schema_of(kind: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI entry for a route that reads `kind` through `read_body`."""
    schema = kind.model_json_schema(by_alias=True)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _demand_json(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        sentence = "The body must be sent as application/json."
        raise Problem("invalid_request", sentence, field="Content-Type", status=415)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        sentence = "The body must be sent without a content encoding."
        raise Problem("invalid_request", sentence, field="Content-Encoding", status=415)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise invalid("body", "The body names a field twice.")
    return value


def _no_constant(_word: str) -> NoReturn:
    raise invalid("body", "The body holds a number that JSON does not have.")


def _short_integer(digits: str) -> int:
    if len(digits) > _INTEGER_DIGITS:
        raise invalid("body", "The body holds a number that is too long.")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits) if len(digits) <= 400 else math.inf
    if not math.isfinite(number):
        raise invalid("body", "The body holds a number that is too large.")
    return number


def _demand_clean(value: Any, field: str) -> None:
    if isinstance(value, str):
        clean_text(value, field)
    elif isinstance(value, list):
        for item in value:
            _demand_clean(item, field)
    elif isinstance(value, dict):
        for key, item in value.items():
            clean_text(key, field)
            _demand_clean(item, key if _FIELD_NAME.match(key) else field)
