"""The model behind the embedded engine: llama.cpp, one object that owns all native parts.

It must have a process of its own, as the library aborts when it is misused; only the vocabulary and
`cancel` may be used outside the compute thread.
"""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tertulia.replica.description import Description
from tertulia.replica.letters import bytes_of
from tertulia.replica.model import Cancelled, Choice, Entry, ModelLimits, ModelSettings
from tertulia.replica.sampling import RECENT_TOKENS, recent_tokens, reply_biases, seed_at

CELLS = 256  # llama.cpp rounds a cache up to a multiple; asking for one keeps our counts true
# From 64 tokens on attention is computed in tiles: quicker for one sequence, and up to three times
# as slow for several, as a tile is computed for all of them when one attends to it.
BELOW_TILES = 63
FLASH_ATTENTION = 1  # prefill 405 against 281 tokens/s without, 32 sequences 265 against 153
BLOCK_TOKENS = 16
# Every used cell makes every step slower, though nobody looks at it (8 streams: 24 ms a step beside
# none, 27 ms beside 2,048 tokens, 40 ms beside 8,192), and blocks come back from ordinary memory
# within microseconds a token.
IDLE_SHARE = 0.125


class LlamaModel:
    """A `Model` over a GGUF file."""

    def __init__(self, folder: Path, description: Description, settings: ModelSettings) -> None:
        os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # or an abort starts a debugger
        cpp: Any = importlib.import_module("cyllama.llama.llama_cpp")
        tokenizers: Any = importlib.import_module("tokenizers")
        cpp.disable_logging()
        cpp.ggml_backend_load_all()
        n_cache = -(-settings.n_cache // CELLS) * CELLS
        self._cpp = cpp
        self._ends = frozenset(description.end_ids)
        self._controls = frozenset(description.control_ids.values())
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        model_params = cpp.LlamaModelParams()
        model_params.n_gpu_layers = 0
        gguf = folder / "model.gguf"
        self._model = cpp.LlamaModel(path_model=str(gguf), params=model_params, verbose=False)
        self._context = _open_context(cpp, self._model, settings, n_cache)
        self._batch = cpp.LlamaBatch(n_tokens=settings.n_batch, embd=0, n_seq_max=1, verbose=False)
        self._vocabulary = self._model.get_vocab()
        self._chain_params = cpp.LlamaSamplerChainParams()
        self._chain_params.no_perf = True
        self._pieces: dict[int, bytes] = {}
        self._spare = settings.n_sequences  # between two calls it holds nothing
        self._limits = ModelLimits(
            window_tokens=min(description.window_tokens, n_cache),
            n_cache=n_cache,
            n_sequences=settings.n_sequences,
            n_batch=settings.n_batch,
            n_mixed=min(settings.n_batch, BELOW_TILES),
            n_vocabulary=int(self._vocabulary.n_vocab),
            block_tokens=BLOCK_TOKENS,
            idle_share=IDLE_SHARE,
        )

    @property
    def limits(self) -> ModelLimits:
        return self._limits

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def piece(self, token: int) -> bytes:
        known = self._pieces.get(token)
        if known is None:
            known = b"" if token in self._controls else bytes_of(self._vocabulary.get_text(token))
            self._pieces[token] = known  # at most one entry per token of the vocabulary
        return known

    def is_end(self, token: int) -> bool:
        return token in self._ends

    def decode(self, entries: Sequence[Entry]) -> None:
        assert 0 < len(entries) <= self._limits.n_batch
        self._batch.clear()
        for entry in entries:
            self._batch.add(entry.token, entry.position, [entry.sequence], entry.wants_logits)
        try:
            returned = self._context.decode(self._batch)
        except InterruptedError as error:
            raise Cancelled(str(error)) from error
        assert not returned, f"llama.cpp answered {returned}"

    def choose(self, row: int, choice: Choice, tokens: Sequence[int], n_prompt: int) -> int:
        # A chain for each token: its state is then only the sequence itself and its position, so
        # that a reply continued elsewhere draws the same tokens. It costs microseconds.
        chain = self._cpp.LlamaSampler(self._chain_params)
        try:
            self._weigh(chain, choice, tokens, n_prompt)
            _draw(chain, choice, len(tokens))
            return int(chain.sample(self._context, row))
        finally:
            chain.close()

    def _weigh(self, chain: Any, choice: Choice, tokens: Sequence[int], n_prompt: int) -> None:
        """What is done to the logits before the draw, in vLLM's order."""
        if choice.biases:
            self._add_biases(chain, list(choice.biases))
        if choice.repetition_penalty != 1.0:
            chain.add_penalties(RECENT_TOKENS, choice.repetition_penalty, 0.0, 0.0)
            for token in recent_tokens(tokens, self._controls):
                chain.accept(token)
        # As biases: the library's own penalty counts the prompt as well.
        if penalties := reply_biases(choice, tokens[n_prompt:], self._controls):
            self._add_biases(chain, penalties)
        if choice.constraint is not None:
            self._add_biases(chain, choice.constraint.biases(tokens[n_prompt:]))

    def _add_biases(self, chain: Any, biases: list[tuple[int, float]]) -> None:
        chain.add_logit_bias(self._limits.n_vocabulary, biases)

    def copy(self, source: int, target: int, first: int, last: int) -> None:
        self._context.memory_seq_cp(source, target, first, last)

    def cut(self, sequence: int, first: int, last: int) -> None:
        self._context.memory_seq_rm(sequence, first, last)

    def save(self, sequence: int, first: int, last: int) -> bytes:
        # The library saves whole sequences: a spare one is given just these positions.
        self._context.memory_seq_cp(sequence, self._spare, first, last)
        state = bytes(self._context.get_state_seq_data(self._spare))
        self._context.memory_seq_rm(self._spare, -1, -1)
        return state

    def restore(self, sequence: int, state: bytes) -> None:
        self._context.set_state_seq_data(state, self._spare)
        first = self._context.memory_seq_pos_min(self._spare)
        assert first >= 0, "the state was not taken"
        self._context.memory_seq_cp(self._spare, sequence, first, -1)
        self._context.memory_seq_rm(self._spare, -1, -1)

    def cancel(self) -> None:
        self._context.cancel = True

    def close(self) -> None:
        # In this order: each part points into the next one.
        self._batch.close()
        self._context.close()
        self._vocabulary = None
        self._model.close()


def _open_context(cpp: Any, model: Any, settings: ModelSettings, n_cache: int) -> Any:
    params = cpp.LlamaContextParams()
    params.n_ctx = n_cache
    params.n_batch = params.n_ubatch = settings.n_batch
    params.n_threads = params.n_threads_batch = settings.threads
    params.n_seq_max = settings.n_sequences + 1
    params.kv_unified = True  # without it, copying part of a sequence aborts the process
    params.flash_attn_type = FLASH_ATTENTION
    context = cpp.LlamaContext(model=model, params=params, verbose=False)
    context.install_cancel_callback()
    return context


def _draw(chain: Any, choice: Choice, position: int) -> None:
    if choice.temperature <= 0:
        chain.add_greedy()
        return
    # The likeliest stay the same whatever the temperature, and what follows has less to do: 0.1 ms
    # a token instead of 0.8, which eight streams would pay in every step.
    if choice.top_k > 0:
        chain.add_top_k(choice.top_k)
    chain.add_temp(choice.temperature)
    if choice.min_p > 0:
        chain.add_min_p(choice.min_p, 1)
    if choice.top_p < 1:
        chain.add_top_p(choice.top_p, 1)
    chain.add_dist(seed_at(choice.seed, position))
