"""What every `Model` promises, asked of each: the fake, llama.cpp, and OpenVINO where it is there.

It must ask nothing that the step loop does not rely on.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from tertulia.replica.description import read_description
from tertulia.replica.llama import LlamaModel
from tertulia.replica.model import Choice, Entry, Model, ModelSettings, NotReady
from tests.replica.conftest import models_dir
from tests.replica.fake_model import FakeModel

LIKELIEST = Choice(temperature=0, top_p=1, repetition_penalty=1, seed=0)
DRAWN = Choice(temperature=1.5, top_p=0.9, repetition_penalty=1.1, seed=7, min_p=0.01, top_k=40)
FAR = 1 << 20
N_CACHE = 1024
N_SEQUENCES = 4
N_BLOCKS = 4  # of the prompt; a few tokens follow
N_SAID = 12


@pytest.fixture(
    scope="module",
    params=[
        "fake",
        pytest.param("llama.cpp", marks=pytest.mark.model),
        pytest.param("openvino", marks=pytest.mark.model),
    ],
)
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    opened = _opened(request.param)
    yield opened
    opened.close()


def _opened(name: str) -> Model:
    if name == "fake":
        return FakeModel(n_cache=N_CACHE, n_sequences=N_SEQUENCES)
    folder = models_dir() / "small"
    if not (folder / "model.json").is_file():
        pytest.skip(f"the small model is not installed in {folder}: tertulia models pull small")
    settings = ModelSettings(threads=1, n_cache=N_CACHE, n_sequences=N_SEQUENCES, n_batch=128)
    if name == "llama.cpp":
        return LlamaModel(folder, read_description(folder), settings)
    from tertulia.replica.openvino import OpenVinoModel

    try:
        return OpenVinoModel(Path(folder), read_description(folder), settings)
    except NotReady as missing:
        pytest.skip(str(missing))


@pytest.fixture(autouse=True)
def _empty(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    model = cast("Model", request.getfixturevalue("model"))
    for sequence in range(model.limits.n_sequences):
        model.cut(sequence, 0, FAR)


def test_its_limits_fit_each_other(model: Model) -> None:
    limits = model.limits
    assert limits.n_cache % limits.block_tokens == 0
    assert 0 < limits.n_mixed <= limits.n_batch
    assert 0 <= limits.idle_share <= 1


def test_pieces_are_the_bytes_of_the_text(model: Model) -> None:
    text = "Où est 😀?\n\t<|im_end|>  done\x00"
    assert b"".join(model.piece(token) for token in model.encode(text)) == text.encode()


def test_what_is_shared_reads_as_if_it_had_been_computed(model: Model) -> None:
    said = _said(model, 0, 0)
    model.copy(0, 1, 0, _whole(model))
    assert _said(model, 1, _whole(model)) == said
    assert _said(model, 0, _whole(model)) == said


def test_sharing_takes_no_room_and_a_cut_holder_leaves_the_others_theirs(model: Model) -> None:
    half = model.limits.n_cache // 2
    tokens = _prompt(model, half)
    _read(model, 0, tokens, 0)
    model.copy(0, 1, 0, half)
    model.copy(1, 2, 0, half)
    model.cut(0, 0, FAR)
    model.cut(1, 0, FAR)
    _read(model, 3, tokens, 0)
    again = half - model.limits.block_tokens
    for sequence in (2, 3):
        model.cut(sequence, again, FAR)
    assert _next(model, 2, tokens, again) == _next(model, 3, tokens, again)


def test_room_is_free_again_when_the_last_holder_is_cut(model: Model) -> None:
    tokens = _prompt(model, model.limits.n_cache // 2)
    shared = model.limits.block_tokens
    for _ in range(3):
        _read(model, 0, tokens, 0)
        _read(model, 1, tokens, 0)
        model.copy(0, 2, 0, shared)
        for sequence in range(3):
            model.cut(sequence, 0, FAR)


def test_blocks_that_were_saved_come_back_one_after_another(model: Model) -> None:
    block = model.limits.block_tokens
    said = _said(model, 0, 0)
    states = [model.save(0, first, first + block) for first in range(0, _whole(model), block)]
    assert len({len(state) for state in states}) == 1
    model.cut(0, 0, FAR)
    for state in states:
        model.restore(2, state)
    assert _said(model, 2, _whole(model)) == said


def test_a_sequence_may_be_cut_inside_a_block_and_read_on(model: Model) -> None:
    said = _said(model, 0, 0)
    model.cut(0, _whole(model) + 2, FAR)
    assert _said(model, 0, _whole(model) + 2) == said


def test_sequences_in_one_batch_do_not_see_each_other(model: Model) -> None:
    tokens = _prompt(model, _whole(model) + 6)
    other = tokens[::-1]
    alone = [_next(model, 0, tokens, 0), _next(model, 1, other, 0)]
    for sequence in (0, 1):
        model.cut(sequence, len(tokens) - 1, FAR)
    model.decode(
        [
            Entry(last, len(tokens) - 1, sequence, wants_logits=True)
            for sequence, last in enumerate((tokens[-1], other[-1]))
        ]
    )
    together = [
        model.choose(row, LIKELIEST, read, len(read)) for row, read in enumerate((tokens, other))
    ]
    assert together == alone


@pytest.mark.parametrize("choice", [LIKELIEST, DRAWN])
def test_choosing_changes_nothing_and_depends_on_nothing_else(model: Model, choice: Choice) -> None:
    tokens = _prompt(model, _whole(model) + 6)
    _read(model, 0, tokens[:-1], 0)
    model.copy(0, 1, 0, _whole(model))
    _read(model, 1, tokens[:-1], _whole(model))
    place = len(tokens) - 1
    model.decode([Entry(tokens[-1], place, n, wants_logits=True) for n in (0, 1)])
    first = [model.choose(row, choice, tokens, 5) for row in (0, 1)]
    again = [model.choose(row, choice, tokens, 5) for row in (1, 0)]
    assert first + again == first[:1] * 4


def _whole(model: Model) -> int:
    return N_BLOCKS * model.limits.block_tokens


def _prompt(model: Model, n_tokens: int) -> list[int]:
    return (model.encode("The harbour was built when the fleet had grown. ") * n_tokens)[:n_tokens]


def _read(model: Model, sequence: int, tokens: Sequence[int], first: int) -> int:
    """Reads all from `first` on in batches; the row of the last one."""
    row = 0
    for begin in range(first, len(tokens), model.limits.n_batch):
        piece = tokens[begin : begin + model.limits.n_batch]
        row = len(piece) - 1
        model.decode([Entry(token, begin + n, sequence, n == row) for n, token in enumerate(piece)])
    return row


def _next(model: Model, sequence: int, tokens: Sequence[int], first: int) -> int:
    return model.choose(_read(model, sequence, tokens, first), LIKELIEST, tokens, len(tokens))


def _said(model: Model, sequence: int, first: int) -> list[int]:
    """Reads the prompt from `first` on and lets the model go on, which it forgets again."""
    prompt = _prompt(model, _whole(model) + 6)
    model.cut(sequence, first, FAR)
    said = [_next(model, sequence, prompt, first)]
    while len(said) < N_SAID:
        tokens = prompt + said
        said.append(_next(model, sequence, tokens, len(tokens) - 1))
    model.cut(sequence, len(prompt), FAR)
    return said
