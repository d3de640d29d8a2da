"""The other model of the embedded engine: OpenVINO's paged attention over block tables of our own.

It must be used by one thread; a block that two sequences hold is never written.
"""

import importlib
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from tertulia.replica.card import GRAPH, GRAPH_WEIGHTS
from tertulia.replica.description import Description
from tertulia.replica.draw import draw
from tertulia.replica.letters import bytes_of
from tertulia.replica.model import Cancelled, Choice, Entry, ModelLimits, ModelSettings, NotReady

BLOCK = 32  # tokens; the only size that OpenVINO's CPU plug-in offers
IDLE_SHARE = 1.0  # what lies there slows nobody down: a step reads only the blocks of its sequences


class OpenVinoModel:
    """A `Model` over a folder that holds a converted graph beside the tokenizer."""

    def __init__(self, folder: Path, description: Description, settings: ModelSettings) -> None:
        _check_ready(folder)
        ov: Any = importlib.import_module("openvino")
        passes: Any = importlib.import_module("openvino._offline_transformations")
        tokenizers: Any = importlib.import_module("tokenizers")
        self._ov = ov
        self._ends = frozenset(description.end_ids)
        self._controls = frozenset(description.control_ids.values())
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        core = ov.Core()
        graph = core.read_model(str(folder / GRAPH))
        passes.paged_attention_transformation(graph)
        _want_sampled_rows_only(graph)
        compiled = core.compile_model(
            graph,
            "CPU",
            {
                "INFERENCE_NUM_THREADS": settings.threads,
                "PERFORMANCE_HINT": "LATENCY",
                # By channel, the default, a block's keys depend on what it held before a cut.
                "KEY_CACHE_QUANT_MODE": "BY_TOKEN",
            },
        )
        self._request = compiled.create_infer_request()
        n_blocks = -(-settings.n_cache // BLOCK)
        self._caches = []  # keys and values of every layer, block by block
        for port in compiled.inputs:
            name = port.get_any_name()
            if "_cache." in name:
                shape = [n_blocks, *(size.get_length() for size in port.get_partial_shape()[1:])]
                tensor = ov.Tensor(port.get_element_type(), ov.Shape(shape))
                self._request.set_tensor(name, tensor)
                self._caches.append(tensor.data)
        self._free = list(range(n_blocks))
        self._users: Counter[int] = Counter()
        # By sequence: the block of each number it holds. Those that decode hold all from 0 on.
        self._tables: list[dict[int, int]] = [{} for _ in range(settings.n_sequences)]
        self._rows: dict[int, int] = {}
        self._logits: Any = None
        self._limits = ModelLimits(
            window_tokens=min(description.window_tokens, n_blocks * BLOCK),
            n_cache=n_blocks * BLOCK,
            n_sequences=settings.n_sequences,
            n_batch=settings.n_batch,
            n_mixed=settings.n_batch,
            n_vocabulary=self._tokenizer.get_vocab_size(),
            block_tokens=BLOCK,
            idle_share=IDLE_SHARE,
        )

    @property
    def limits(self) -> ModelLimits:
        return self._limits

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def piece(self, token: int) -> bytes:
        return b"" if token in self._controls else bytes_of(self._tokenizer.id_to_token(token))

    def is_end(self, token: int) -> bool:
        return token in self._ends

    def decode(self, entries: Sequence[Entry]) -> None:
        assert 0 < len(entries) <= self._limits.n_batch
        before, begins, blocks, block_begins = [], [0], [], [0]
        for sequence, group in groupby(entries, key=lambda entry: entry.sequence):
            positions = [entry.position for entry in group]
            before.append(positions[0])
            begins.append(begins[-1] + len(positions))
            blocks += self._table_up_to(sequence, positions[0], positions[-1] + 1)
            block_begins.append(len(blocks))
        wanted = [row for row, entry in enumerate(entries) if entry.wants_logits] or [0]
        for name, values, kind in (
            ("input_ids", [entry.token for entry in entries], np.int64),
            ("position_ids", [entry.position for entry in entries], np.int64),
            ("past_lens", before, np.int32),
            ("subsequence_begins", begins, np.int32),
            ("block_indices", blocks, np.int32),
            ("block_indices_begins", block_begins, np.int32),
            ("max_context_len", max(entry.position for entry in entries) + 1, np.int32),
            ("sampled", wanted, np.int64),
        ):
            self._request.set_tensor(name, self._ov.Tensor(np.array(values, kind)))
        try:
            self._request.infer()
        except RuntimeError as error:
            if "cancel" in str(error).lower():
                raise Cancelled(str(error)) from error
            raise
        self._rows = {row: place for place, row in enumerate(wanted)}
        self._logits = self._request.get_output_tensor(0).data.reshape(len(wanted), -1)

    def choose(self, row: int, choice: Choice, tokens: Sequence[int], n_prompt: int) -> int:
        logits = self._logits[self._rows[row]][: self._limits.n_vocabulary]
        return draw(logits, choice, tokens, n_prompt, self._controls)

    def copy(self, source: int, target: int, first: int, last: int) -> None:
        for number in range(first // BLOCK, -(-last // BLOCK)):
            block = self._tables[source][number]
            self._users[block] += 1
            self._tables[target][number] = block

    def cut(self, sequence: int, first: int, last: int) -> None:
        table = self._tables[sequence]
        for number in [n for n in table if -(-first // BLOCK) <= n < -(-last // BLOCK)]:
            block = table.pop(number)
            self._users[block] -= 1
            if not self._users[block]:
                self._free.append(block)

    def save(self, sequence: int, first: int, last: int) -> bytes:
        numbers = range(first // BLOCK, -(-last // BLOCK))
        blocks = [self._tables[sequence][number] for number in numbers]
        parts = [numbers.start.to_bytes(4, "little"), len(blocks).to_bytes(4, "little")]
        return b"".join([*parts, *(cache[blocks].tobytes() for cache in self._caches)])

    def restore(self, sequence: int, state: bytes) -> None:
        number, n_blocks = (int.from_bytes(state[place : place + 4], "little") for place in (0, 4))
        blocks = [self._take(sequence, number + n) for n in range(n_blocks)]
        place = 8
        for cache in self._caches:
            shape = (n_blocks, *cache.shape[1:])
            n_items = int(np.prod(shape))
            saved = np.frombuffer(state, cache.dtype, n_items, place)
            cache[blocks] = saved.reshape(shape)
            place += saved.nbytes

    def cancel(self) -> None:
        self._request.cancel()

    def close(self) -> None:
        self._logits = self._request = None

    def _table_up_to(self, sequence: int, first: int, last: int) -> list[int]:
        """The blocks of all positions before `last`; those from `first` on will be written."""
        table = self._tables[sequence]
        for number in range(first // BLOCK, -(-last // BLOCK)):
            block = table[number] if number in table else self._take(sequence, number)
            assert self._users[block] == 1, "somebody else would read what is written here"
        return [table[number] for number in range(-(-last // BLOCK))]

    def _take(self, sequence: int, number: int) -> int:
        block = self._free.pop()
        self._users[block] = 1
        self._tables[sequence][number] = block
        return block


def _check_ready(folder: Path) -> None:
    if find_spec("openvino") is None:
        raise NotReady("OpenVINO is not installed: `scripts/setup openvino` does that")
    if not all((folder / file).is_file() for file in (GRAPH, GRAPH_WEIGHTS)):
        name = folder.name
        raise NotReady(f"{name} has no graph: `tertulia models convert {name}` makes it")


def _want_sampled_rows_only(graph: Any) -> None:
    """Lets only the rows named by a new input `sampled` reach the product with the vocabulary."""
    ops: Any = importlib.import_module("openvino.opset13")
    node = graph.get_results()[0].input_value(0).get_node()
    while node.get_type_name() != "MatMul":
        node = node.input_value(0).get_node()
    rows = ops.parameter([-1], np.int64, name="sampled")
    rows.get_output_tensor(0).set_names({"sampled"})
    gathered = ops.gather(node.input_value(0), rows, ops.constant(np.int64(0)))
    node.input(0).replace_source_output(gathered.output(0))
    graph.add_parameters([rows])
    graph.validate_nodes_and_infer_types()
