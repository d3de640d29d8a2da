"""The block tables of the OpenVINO model; run where OpenVINO is installed and a graph was made."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tertulia.replica.description import read_description
from tertulia.replica.llama import LlamaSettings
from tertulia.replica.model import Choice, Entry
from tertulia.replica.openvino import BLOCK, GRAPH, OpenVinoModel

FOLDER = Path(__file__).resolve().parents[2] / ".tertulia" / "models" / "small"
LIKELIEST = Choice(temperature=0, top_p=1, repetition_penalty=1, seed=0)
FAR = 1 << 20
N_PROMPT = 4 * BLOCK + 10


@pytest.fixture(scope="module")
def model() -> Iterator[OpenVinoModel]:
    pytest.importorskip("openvino")
    if not (FOLDER / GRAPH).exists():
        pytest.skip("no graph was made of the small model")
    opened = OpenVinoModel(FOLDER, read_description(FOLDER), LlamaSettings(1, 1024, 4, 256))
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _empty(model: OpenVinoModel) -> Iterator[None]:
    yield
    for sequence in range(model.limits.n_sequences):
        model.cut(sequence, 0, FAR)


def test_a_shared_block_reads_as_if_it_had_been_computed(model: OpenVinoModel) -> None:
    said = _said(model, 0, 0)
    model.copy(0, 1, 0, 4 * BLOCK)
    assert _said(model, 1, 4 * BLOCK) == said


def test_ranges_that_were_saved_come_back_one_after_another(model: OpenVinoModel) -> None:
    said = _said(model, 0, 0)
    states = [model.save(0, 0, BLOCK), model.save(0, BLOCK, 4 * BLOCK)]
    model.cut(0, 0, FAR)
    for state in states:
        model.restore(2, state)
    assert _said(model, 2, 4 * BLOCK) == said


def test_a_sequence_may_be_cut_inside_a_block_and_read_on(model: OpenVinoModel) -> None:
    said = _said(model, 0, 0)
    model.cut(0, N_PROMPT - 3, FAR)
    assert _said(model, 0, N_PROMPT - 3) == said


def test_every_block_is_free_again_when_its_last_holder_is_cut(model: OpenVinoModel) -> None:
    for _ in range(3):  # each round needs more than half of all blocks
        for sequence in range(3):
            _said(model, sequence, 0)
        model.copy(0, 3, 0, BLOCK)
        for sequence in range(4):
            model.cut(sequence, 0, FAR)


def _said(model: OpenVinoModel, sequence: int, first: int) -> list[int]:
    """Reads the prompt from `first` on and lets the model say 20 tokens, which it forgets again."""
    prompt = (model.encode("The harbour was built when the fleet had grown. ") * 20)[:N_PROMPT]
    said: list[int] = []
    tokens = prompt[first:]
    for _ in range(20):
        n_before = len(prompt) + len(said) - len(tokens)
        model.decode(
            [
                Entry(token, n_before + place, sequence, place == len(tokens) - 1)
                for place, token in enumerate(tokens)
            ]
        )
        said.append(model.choose(len(tokens) - 1, LIKELIEST, prompt + said, len(prompt)))
        tokens = said[-1:]
    model.cut(sequence, len(prompt), FAR)
    return said
