"""Keeps a reply to a JSON schema, a regular expression, a grammar or a list of choices.

What clients send here is code that runs in our parser: it must never cost more than its bounds.
"""

import importlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from tertulia.replica.model import Model, Stuck

MAX_CHARS = 16_384  # a schema with all of its descriptions; it compiles in some 30 ms
MAX_DEPTH = 64  # of nested JSON
# Rules, references and the like that can form a chain: the library follows a chain by recursion,
# and one of about 1,500 links ends the process.
MAX_LINKS = 200
MAX_CHOICES = 256
# The library's own limits, of one compilation and one token. With these the worst grammar that was
# found takes 35 ms for a token, once: it is then refused as too complex.
LIMITS = {
    "max_items_in_row": 300,
    "initial_lexer_fuel": 100_000,
    "step_lexer_fuel": 50_000,
    "step_max_items": 2_000,
    "max_lexer_states": 5_000,  # 1 to 2 KB each
    "max_grammar_size": 20_000,
    "precompute_large_lexemes": False,
    "verbose_errors": False,  # or errors repeat what was sent
}
# Between the parts of JSON. Small models would go on with blanks for ever; deep indents fit in.
BLANKS = r"[\x20\x0A\x0D\x09]{1,64}"
FORBIDDEN, ALLOWED = 0, 200  # as the library writes its mask
BIAS = 1_000.0  # more than logits differ by, little enough for their differences to survive

Kind = Literal["json", "regex", "choice", "grammar"]


class ConstraintRefused(ValueError):
    """It can't be read, is too large, or nothing satisfies it; the message is for the client."""


class Constraints:
    """Compiles what clients ask for. It may be used by several threads."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._tokenizer: Any = None

    def compile(self, kind: Kind, source: Any) -> "CompiledConstraint":
        """`source` is a schema, a pattern, a grammar in GBNF or Lark, or a list of texts."""
        parser: Any = importlib.import_module("llguidance")
        text = _TEXT_OF[kind](parser, source)
        limits = parser.LLParserLimits(**LIMITS)
        matcher = parser.LLMatcher(self._known_tokens(parser), text, log_level=0, limits=limits)
        if matcher.is_error():
            raise ConstraintRefused(_shown(matcher.get_error()))
        compiled = CompiledConstraint(matcher)
        try:
            compiled.biases(())
        except Stuck:
            raise ConstraintRefused("nothing satisfies it, or it is too complex") from None
        return compiled

    def _known_tokens(self, parser: Any) -> Any:
        """Built at the first use: it takes 0.2 s, and most engines never need it."""
        with self._lock:
            if self._tokenizer is None:
                tokens = _Tokens(self._model)
                self._tokenizer = parser.LLTokenizer(tokens, eos_token=tokens.end_ids)
            return self._tokenizer


class CompiledConstraint:
    """The constraint of one request.

    Invariant: the matcher has read exactly `_read`. When asked about another reply it begins anew,
    so that what it says depends on the reply alone.
    """

    def __init__(self, matcher: Any) -> None:
        self._fresh = matcher  # one that met an error never works again, but its copies do
        self._matcher = matcher.deep_copy()
        self._read: list[int] = []

    def biases(self, reply: Sequence[int]) -> list[tuple[int, float]]:
        """Linear in what is new of the reply, plus some 0.1 microseconds for each token named."""
        if self._matcher.is_error() or list(reply[: len(self._read)]) != self._read:
            self._matcher = self._fresh.deep_copy()
            self._read.clear()
        for token in reply[len(self._read) :]:
            if not self._matcher.consume_token(token):
                raise self._stuck()
            self._read.append(token)
        allowed: bytes = self._matcher.compute_logit_bias()  # a byte a token; 0: not allowed
        if self._matcher.is_error():
            raise self._stuck()
        # Whichever list is shorter: the sampler walks it.
        if allowed.count(FORBIDDEN) < len(allowed) // 2:
            return [(token, -BIAS) for token in _places(allowed, FORBIDDEN)]
        return [(token, BIAS) for token in _places(allowed, ALLOWED)]

    def _stuck(self) -> Stuck:
        return Stuck(_shown(self._matcher.get_error()))


def _places(data: bytes, value: int) -> Iterator[int]:
    place = data.find(value)
    while place >= 0:
        yield place
        place = data.find(value, place + 1)


class _Tokens:
    """The vocabulary in the form that the parser asks for, whose names these are."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, model: Model) -> None:
        ids = range(model.limits.n_vocabulary)
        # A byte that no text has marks the tokens that no text may become.
        self.tokens = [model.piece(token) or b"\xff<%d>" % token for token in ids]
        self.special_token_ids = [token for token in ids if not model.piece(token)]
        self.end_ids = [token for token in ids if model.is_end(token)]
        self.eos_token_id = self.end_ids[-1]
        self._encode = model.encode

    def __call__(self, text: bytes | str) -> list[int]:
        return self._encode(text if isinstance(text, str) else text.decode(errors="replace"))


def _json_text(parser: Any, source: Any) -> str:
    schema = _parsed(source)
    n_links = 0
    for value, depth in _walk(schema):
        if depth > MAX_DEPTH:
            raise ConstraintRefused(f"nested deeper than {MAX_DEPTH}")
        n_links += isinstance(value, dict) and not _LINKING.isdisjoint(value)
    if n_links > MAX_LINKS:
        raise ConstraintRefused(f"more than {MAX_LINKS} references")
    defaults = {"whitespace_pattern": BLANKS}
    try:
        return str(parser.LLMatcher.grammar_from_json_schema(json.dumps(schema), defaults=defaults))
    except ValueError as error:  # Python reads more as JSON than there is
        raise ConstraintRefused(_shown(str(error))) from None


_LINKING = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))


def _regex_text(parser: Any, source: str) -> str:
    return str(parser.LLMatcher.grammar_from_regex(_bounded(source)))


def _choice_text(parser: Any, source: Sequence[str]) -> str:
    if not 1 <= len(source) <= MAX_CHOICES:
        raise ConstraintRefused(f"from 1 to {MAX_CHOICES} choices")
    _bounded("".join(source))
    return str(parser.LLMatcher.grammar_from_regex("|".join(map(re.escape, source))))


def _grammar_text(parser: Any, source: str) -> str:
    if _bounded(source).count(":") > MAX_LINKS:  # each rule has at least one
        raise ConstraintRefused(f"more than {MAX_LINKS} rules")
    try:
        return str(parser.grammar_from("grammar", source))
    except (ValueError, RecursionError) as error:
        raise ConstraintRefused(_shown(str(error))) from None


_TEXT_OF: dict[Kind, Callable[[Any, Any], str]] = {
    "json": _json_text,
    "regex": _regex_text,
    "choice": _choice_text,
    "grammar": _grammar_text,
}


def _bounded(text: str) -> str:
    if len(text) > MAX_CHARS:
        raise ConstraintRefused(f"longer than {MAX_CHARS} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConstraintRefused("half of a surrogate pair is no character") from None
    return text


def _parsed(source: Any) -> Any:
    try:
        text = source if isinstance(source, str) else json.dumps(source)
        return json.loads(_bounded(text))
    except ConstraintRefused:
        raise
    except (ValueError, RecursionError):
        raise ConstraintRefused("not JSON") from None


def _walk(value: Any) -> Iterator[tuple[Any, int]]:
    """Every value inside, with its depth; without recursion."""
    left = [(value, 1)]
    while left:
        value, depth = left.pop()
        yield value, depth
        inner = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict | list):
            left += [(item, depth + 1) for item in inner]


def _shown(message: str) -> str:
    """The parser's words without the source that they quote."""
    return re.sub(r"""(["'])[^"']*\1?""", "…", message.partition("\n")[0])[:200]
