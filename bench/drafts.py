"""Prompt lookup: what followed the last tokens before is verified in the same call.

`python -m bench.drafts MODEL`; drafts change how fast a reply comes, never which tokens it has.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer

from bench.levers import MODELS, Q8, TILE, Rig
from tertulia.core.types import PromptMessage
from tertulia.replica.chat import ChatPrompts
from tertulia.replica.description import Description, read_description
from tertulia.replica.model import Choice

N_TOKENS = 80  # of each reply
LIKELIEST = Choice(temperature=0, top_p=1, repetition_penalty=1, seed=0)
CHATS = (
    "Why is the sky blue?",
    "Give me three ideas for a birthday present for my father, who likes gardening.",
    "Write a short story about a lighthouse keeper and a whale.",
    "How do I cook rice so that it does not stick?",
    "What is the difference between a list and a tuple in Python?",
    "My neighbour plays loud music at night. What can I say to him?",
    "Explain to a child what a volcano is.",
    "Plan a weekend in Lisbon for two people.",
    "Write a Python function that counts the words of a text.",
    "What should I think about before I adopt a dog?",
    "How does a bicycle stay upright?",
    "Write a polite e-mail that moves a meeting from Monday to Thursday.",
    "What are good habits for learning a language?",
    "Describe how bread is made, step by step.",
    "Why do leaves change their colour in autumn?",
    "Name five games that need nothing but paper and a pencil.",
    "How can I sleep better?",
    "What does a mayor do?",
    "Write four lines about the sea.",
    "How do noise-cancelling headphones work?",
)
QUOTING = (
    "Correct the spelling of this text and repeat it in full:\n\n",
    "Summarise this text, and quote its most important sentences word for word:\n\n",
    "Repeat this text as a list, one sentence a line:\n\n",
    "Which sentences of this text speak of the weather? Quote them:\n\n",
)
PASSAGE = (
    "The harbour of Vila Nova was built in 1821, when the fishing fleet had grown to sixty boats. "
    "Its long stone wall keeps out the swell of the winter storms, which come from the south-west. "
    "In the summer of 1904 a fire destroyed the warehouses on the eastern quay, and the town "
    "council decided to rebuild them in brick. The new warehouses had iron doors and slate roofs. "
    "Today the fleet has eleven boats, and most of the warehouses are workshops or restaurants. "
    "Every year in September the town celebrates the return of the fleet with music and a market. "
    "Visitors should bring a warm coat, because the wind on the wall is strong even on clear days."
)


@dataclass
class Spoken:
    """What a few streams said, how long it took after the prompts, and how the drafts fared."""

    texts: list[list[int]] = field(default_factory=list)
    took_s: float = 0.0
    n_drafted: int = 0
    n_accepted: int = 0

    def __add__(self, other: Spoken) -> Spoken:
        return Spoken(
            self.texts + other.texts,
            self.took_s + other.took_s,
            self.n_drafted + other.n_drafted,
            self.n_accepted + other.n_accepted,
        )


class Talk:
    """A model that answers questions, several side by side."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self._rig = rig
        self._description: Description = read_description(folder)
        self._prompts = ChatPrompts(self._description)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    @property
    def as_served(self) -> Choice:
        usual = self._description.sampling
        return Choice(usual.temperature, usual.top_p, usual.repetition_penalty, 1)

    def answers(self, questions: Sequence[str], choice: Choice, n_drafts: int) -> Spoken:
        """All streams move in each step, each with up to so many drafts from its own past."""
        self._rig.clear()
        past = [self._prompt(question) for question in questions]
        starts = [len(tokens) for tokens in past]
        for stream, tokens in enumerate(past):
            self._rig.call([(stream, 0, tokens)])
            tokens.append(self._chosen(tokens, len(tokens) - 1, choice))
        spoken = Spoken()
        began = time.perf_counter()
        while live := [s for s in range(len(past)) if len(past[s]) - starts[s] < N_TOKENS]:
            self._step({s: past[s] for s in live}, choice, n_drafts, spoken)
        spoken.took_s = time.perf_counter() - began
        spoken.texts = [tokens[start:] for tokens, start in zip(past, starts, strict=True)]
        return spoken

    def _step(
        self, past: dict[int, list[int]], choice: Choice, n_drafts: int, spoken: Spoken
    ) -> None:
        pieces = [
            (stream, len(tokens) - 1, [tokens[-1], *looked_up(tokens, n_drafts)])
            for stream, tokens in past.items()
        ]
        self._rig.call(pieces, all_logits=True)
        row = 0
        for stream, _, tried in pieces:
            tokens = past[stream]
            n_right = 0
            tokens.append(self._chosen(tokens, row, choice))
            while n_right < len(tried) - 1 and tokens[-1] == tried[n_right + 1]:
                n_right += 1
                tokens.append(self._chosen(tokens, row + n_right, choice))
            self._rig.cut(stream, len(tokens) - 1)
            row += len(tried)
            spoken.n_drafted += len(tried) - 1
            spoken.n_accepted += n_right

    def _prompt(self, question: str) -> list[int]:
        said = [PromptMessage("system", "You are a helpful assistant."),
                PromptMessage("user", question)]  # fmt: skip

        def encode(text: str) -> list[int]:
            return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

        return self._prompts.tokens(said, "answer", encode)

    def _chosen(self, tokens: list[int], row: int, choice: Choice) -> int:
        """The next token; it depends on nothing but the logits and the tokens before."""
        cpp = self._rig.cpp
        params = cpp.LlamaSamplerChainParams()
        params.no_perf = True
        chain = cpp.LlamaSampler(params)
        if choice.repetition_penalty != 1.0:
            chain.add_penalties(64, choice.repetition_penalty, 0.0, 0.0)
            for token in tokens[-64:]:
                chain.accept(token)
        if choice.temperature > 0:
            chain.add_temp(choice.temperature)
            chain.add_top_p(choice.top_p, 1)
            chain.add_dist(choice.seed + len(tokens))
        else:
            chain.add_greedy()
        token = int(chain.sample(self._rig.context, row))
        chain.close()
        return token


def looked_up(tokens: list[int], n_drafts: int) -> list[int]:
    """What followed the last three tokens, or the last two, where they stood before."""
    for n_key in (3, 2) if n_drafts else ():
        key = tokens[-n_key:]
        for place in range(len(tokens) - n_key - 1, -1, -1):
            if tokens[place : place + n_key] == key:
                return tokens[place + n_key : place + n_key + n_drafts]
    return []


def drafts(folder: Path) -> None:
    """Tokens a second with and without drafts: one stream, four, eight; chat and quoting."""
    rig = Rig(folder)
    talk = Talk(rig, folder)
    for name, questions in (("chat", CHATS[:8]), ("quoting", [q + PASSAGE for q in QUOTING] * 2)):
        for choice in (LIKELIEST, talk.as_served):
            for n_streams in (1, 4, 8):
                groups = [questions[:n_streams]] if n_streams > 1 else [[q] for q in questions[:4]]
                rates = []
                for n_asked in (0, 3, 7):
                    # Below the number of rows from which attention pays for all streams' cells.
                    n_drafts = min(n_asked, (TILE - 1) // n_streams - 1)
                    whole = sum((talk.answers(g, choice, n_drafts) for g in groups), Spoken())
                    per_s = sum(map(len, whole.texts)) / whole.took_s
                    share = whole.n_accepted / max(1, whole.n_drafted)
                    rates.append(f"{n_drafts} drafts {per_s:.0f} tokens/s ({share:.0%} right)")
                how = f"temperature {choice.temperature:g}"
                print(f"  {name}, {how}, {n_streams} streams: {', '.join(rates)}", flush=True)
    rig.close()


def same_texts(folder: Path) -> None:
    """How many likeliest texts a cache of 8 bits leaves as they are with 16."""
    texts = []
    for types in ({}, {"type_k": Q8, "type_v": Q8}):
        rig = Rig(folder, **types)
        talk = Talk(rig, folder)
        texts.append([talk.answers([q], LIKELIEST, 0).texts[0] for q in CHATS])
        rig.close()
    n_same = sum(one == other for one, other in zip(*texts, strict=True))
    print(f"  {n_same} of {len(CHATS)} likeliest texts of {N_TOKENS} tokens are the same")


if __name__ == "__main__":
    for part in (same_texts, drafts):
        print(f"-- {part.__name__}", flush=True)
        part(MODELS / (sys.argv[1:] or ["small"])[0])
