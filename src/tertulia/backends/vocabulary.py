"""A model's own tokenizer and chat template, read from its folder, without the model's engine.

Whatever a text contains, encoding it must never give a control token: only the template has those.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from tertulia.core.types import Chunk, PromptMessage, Role, TokenIds
from tertulia.description import DescriptionUnreadable, TextDescription, read_text_description
from tertulia.template import ChatTemplate, TemplateRefused, control_splitter

# Template pieces repeat: a handful for each model, a few more for odd orders of roles.
_PIECES_KEPT = 1024
_LOST = "\ufffd"

# Texts that show at load whether a tokenizer changes what it reads.
_PROBES = (
    "",
    " ",
    "  leading, trailing  ",
    "\n\n\ta\r\nb\n",
    "e\u0301 é \ufb01 \u200b\u2028\ufeff",
    "你好 नमस्ते مرحبا 👩‍👩‍👧 \U0010ffff\ue000",
    "1234567890 {{7*7}} <b>&amp;</b> ''' \\n",
)


class VocabularyBroken(ValueError):
    """The model's folder has no usable tokenizer or template; the message says which and why."""


class ModelVocabulary:
    """The vocabulary of one installed model; safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, description: TextDescription) -> None:
        self.name = description.tokenizer_sha256[:16]
        self.window = description.window_tokens
        self.control_ids = frozenset(description.control_ids.values())
        self._tokenizer = tokenizer
        self._control = dict(description.control_ids)
        self._unwritable = _unwritable(tokenizer)
        self._control_split = control_splitter(self._control)
        self._template = ChatTemplate(
            description.chat_template, bos_text=description.bos_text, eos_text=description.eos_text
        )
        # Engines that are sent ids add none themselves, not even the one a text begins with.
        self._begin = description.bos_text if description.adds_bos else ""
        self.encode_control = lru_cache(maxsize=_PIECES_KEPT)(self._encode_control)
        self._check()
        self.cost = self._measured_cost()

    def encode(self, text: str) -> TokenIds:
        """The ids of a text. Characters that the model has no bytes for become U+FFFD."""
        if self._unwritable is not None:
            text = self._unwritable.sub(_LOST, text)
        try:
            ids = tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)
        except TypeError as error:
            raise ValueError("the text holds half of a surrogate pair") from error
        assert self.control_ids.isdisjoint(ids), "a text was read as control tokens"
        return ids

    def _encode_control(self, text: str) -> TokenIds:
        """The ids of a piece of the template, whose control tokens are meant."""
        ids: list[int] = []
        for i, part in enumerate(self._control_split.split(text)):
            # A capturing split alternates: plain, control, plain ...
            if i % 2:
                ids.append(self._control[part])
            elif part:
                ids.extend(self.encode(part))
        return tuple(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; half a character at an end shows as U+FFFD."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    def render(self, messages: Sequence[PromptMessage]) -> Sequence[Chunk]:
        """The prompt of these messages, in pieces; ValueError if the template has no such order."""
        around = self._template.around(tuple(message.role for message in messages))
        first = around[0] if around[0].startswith(self._begin) else self._begin + around[0]
        chunks = [Chunk("control", first)] if first else []
        for message, after in zip(messages, around[1:], strict=True):
            chunks.append(Chunk("text", message.content))
            if after:
                chunks.append(Chunk("control", after))
        return chunks

    def _measured_cost(self) -> tuple[int, int]:
        """What the template adds at most: once, system message included, and for each message."""
        answered: tuple[Role, ...] = ("user", "assistant")
        exchanges = [self._added(("system", *answered * n, "user")) for n in range(4)]
        steps = {after - before for before, after in pairwise(exchanges)}
        if len(steps) != 1:
            raise VocabularyBroken("the chat template adds more tokens the longer the talk is")
        # Half an exchange, or more if one role alone takes more: callers may send any order.
        per_message, whole = (steps.pop() + 1) // 2, exchanges[0]
        roles: tuple[Role, ...] = ("system", "user", "assistant")
        for role in roles:
            with suppress(TemplateRefused):
                once_more = self._added(("system", "user", role, "user"))
                per_message = max(per_message, once_more - self._added(("system", "user", "user")))
                whole = max(whole, self._added(("system", role)))
        return max(0, whole - per_message), per_message

    def _added(self, roles: Sequence[Role]) -> int:
        chunks = self.render([PromptMessage(role, "") for role in roles])
        return sum(len(self.encode_control(c.text)) for c in chunks if c.kind == "control")

    def _check(self) -> None:
        for probe in _PROBES:
            if self.decode(self.encode(probe)) != probe:
                raise VocabularyBroken(f"the tokenizer changes the text {probe!r}")
        for text in self._control:
            ids = self._tokenizer.encode(f"a{text} {text}", add_special_tokens=False).ids
            if not self.control_ids.isdisjoint(ids):
                raise VocabularyBroken(f"the tokenizer reads {text!r} in a text as control tokens")


def load_vocabulary(model_dir: Path) -> ModelVocabulary:
    """Reads `tokenizer.json` and `model.json` of an installed model; takes about a second."""
    try:
        description = read_text_description(model_dir)
        data = (model_dir / "tokenizer.json").read_bytes()
        if hashlib.sha256(data).hexdigest() != description.tokenizer_sha256:
            raise VocabularyBroken("tokenizer.json is not the one that was installed")
        return ModelVocabulary(_tokenizer(data, description.control_ids), description)
    except (OSError, DescriptionUnreadable, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise VocabularyBroken(f"{model_dir} holds no usable vocabulary: {reason}") from error
    except (VocabularyBroken, TemplateRefused) as error:
        raise VocabularyBroken(f"{model_dir}: {error}") from error
    except ValueError as error:
        raise VocabularyBroken(f"{model_dir} holds a file that can't be read: {error}") from error


def _tokenizer(data: bytes, control: Mapping[str, int]) -> Tokenizer:
    document: dict[str, Any] = json.loads(data)
    added = document.get("added_tokens") or []
    # A listed token is found in any text before all else; the template's own must not be.
    kept = [
        token for token in added if not token["special"] and token["id"] not in control.values()
    ]
    if kept != added:
        data = json.dumps({**document, "added_tokens": kept}, ensure_ascii=False).encode()
    try:
        tokenizer = Tokenizer.from_buffer(data)
    # The library raises nothing more exact for a document that it does not understand.
    except Exception as error:
        raise VocabularyBroken(f"tokenizer.json is of no known kind: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _unwritable(tokenizer: Tokenizer) -> re.Pattern[str] | None:
    """The characters of which a byte-level vocabulary lacks a byte: it drops them in silence."""
    known = tokenizer.get_vocab(with_added_tokens=False)
    byte_of = _bytes_by_letter()
    if any(token not in known for token in "etaoin"):
        return None  # not byte-level; the probes decide
    lost = sorted(byte for letter, byte in byte_of.items() if letter not in known)
    ranges: list[str] = []
    for byte in lost:
        if byte < 0x80:
            first, last = byte, byte
        elif 0xC2 <= byte < 0xE0:
            first = (byte & 0x1F) << 6
            last = first + 0x3F
        elif 0xE0 <= byte < 0xF0:
            first = (byte & 0x0F) << 12
            last = first + 0xFFF
        elif 0xF0 <= byte < 0xF5:
            first = (byte & 0x07) << 18
            last = min(first + 0x3FFFF, 0x10FFFF)
        elif byte < 0xC0:
            raise VocabularyBroken(f"the tokenizer has no byte {byte:#x}")
        else:
            continue  # never part of UTF-8
        ranges.append(f"\\U{first:08x}-\\U{last:08x}")
    return re.compile(f"[{''.join(ranges)}]") if ranges else None


def _bytes_by_letter() -> dict[str, int]:
    """The printable letter by which byte-level vocabularies write each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): byte for byte in plain}
    letters.update({chr(0x100 + i): byte for i, byte in enumerate(others)})
    assert set(letters) == set(ByteLevel.alphabet())
    return letters
