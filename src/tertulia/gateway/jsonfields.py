"""The fields of a JSON text that nobody here wrote, each as what it should be, or `Unfit`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, TypeVar

from tertulia.core.transcripts import Flaw
from tertulia.core.types import Finish, Reason, Status

# Times are seconds; some programs write milliseconds, or finer. None of these is a time in seconds.
_FINER: Final = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
_LAST_TIME: Final = 253_402_300_799.0  # the end of the year 9999


class Unfit(Exception):
    """Something in the text is not what it should be; `flaw` says it to its owner."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.flaw = Flaw("not_readable", message)


_Word = TypeVar("_Word", Status, Finish, Reason)


def value_of(raw: bytes) -> Any:
    """The value of a JSON text in UTF-8."""
    try:
        return json.loads(
            raw, object_pairs_hook=_without_doubles, parse_constant=_no_number, parse_float=_finite
        )
    except RecursionError:
        raise Unfit("It is nested too deeply.") from None
    except ValueError:  # bad UTF-8 and bad JSON alike
        raise Unfit("It is not valid JSON in UTF-8.") from None


def maybe_dict(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object; an empty one where there is none."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def dict_of(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object that must be there."""
    return as_dict(value.get(key), key)


def as_dict(value: object, field: str) -> Mapping[str, Any]:
    """What must be an object."""
    if not isinstance(value, dict):
        raise _wrong(field)
    return value


def list_of(value: Mapping[str, Any], key: str) -> Sequence[Any]:
    """The list that must be there."""
    found = value.get(key)
    if not isinstance(found, list):
        raise _wrong(key)
    return found


def text_of(value: Mapping[str, Any], key: str) -> str:
    """The text that must be there; it may be empty."""
    return as_text(value.get(key), key)


def as_text(value: object, field: str) -> str:
    """What must be text."""
    if not isinstance(value, str):
        raise _wrong(field)
    return value


def word_of(value: Mapping[str, Any], key: str) -> str | None:
    """The text, or None where there is none; an empty one is none."""
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise _wrong(key)
    return found or None


def flag_of(value: Mapping[str, Any], key: str) -> bool:
    """The yes or no that must be there."""
    found = value.get(key)
    if not isinstance(found, bool):
        raise _wrong(key)
    return found


def one_of(kind: type[_Word], value: Mapping[str, Any], key: str) -> _Word | None:
    """One of some words, or None where there is none."""
    word = word_of(value, key)
    try:
        return kind(word) if word is not None else None
    except ValueError:
        raise _wrong(key) from None


def moment_of(value: Mapping[str, Any], key: str) -> float:
    """Seconds of a time as RFC 3339 writes it."""
    try:
        time = datetime.fromisoformat(text_of(value, key))
        at = time.replace(tzinfo=time.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        raise _wrong(key) from None
    return max(0.0, at)


def seconds_of(value: object) -> float:
    """Seconds of a number in whatever unit; 0 where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    for least, unit in _FINER:
        if value >= least:
            value = value / unit
            break
    return float(value) if 0 < value <= _LAST_TIME else 0.0


def _wrong(field: str) -> Unfit:
    return Unfit(f"The field {field} is not what it should be.")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Unfit("A field is named twice.")
    return value


def _no_number(_given: str) -> NoReturn:
    raise Unfit("A number in it is none.")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise Unfit("A number in it is none.")
    return number
