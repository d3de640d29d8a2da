"""Blocks of the cache: their names, made of tokens, what came before and whose they are; moves.

It must never give one name to the texts of two owners.

A *block* is the cache of a few consecutive tokens of a sequence. Whoever finds it by its name
knows everything before it as well. The part of a prompt that holds nothing of a person is nobody's:
it has one name for all, and is kept once.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

NAME_BYTES = 32  # of a hash that nobody finds a second text for


@dataclass(frozen=True)
class Owner:
    """Whose tokens they are: everything after the first `n_shared` belongs to `salt` alone."""

    salt: str | None = None
    n_shared: int = 0
    session: str | None = None  # the conversation, so that it can be forgotten

    def shares(self, number: int, block_tokens: int) -> bool:
        """Whether block `number` lies whole in what is nobody's, and so is everybody's."""
        return (number + 1) * block_tokens <= self.n_shared


def block_name(before: bytes, tokens: Sequence[int], owner: Owner, number: int) -> bytes:
    """The name of block `number`; `before` is the name of the one before it, or empty.

    What is hashed can be read in one way only: a name, a mark with a salt or none, the tokens.
    """
    is_shared = owner.shares(number, len(tokens))
    # The shared part, whoever gives no salt, and each salt are owners of their own.
    whose = b"\0" if is_shared else b"\1" if owner.salt is None else b"\2" + owner.salt.encode()
    digest = blake2b(before.ljust(NAME_BYTES, b"\0") + whose, digest_size=NAME_BYTES)
    digest.update(array("I", tokens).tobytes())
    return digest.digest()


@dataclass(frozen=True, slots=True)
class Move:
    """What must be done to the real cache, in the order given.

    save: keep the block's content below the cache. drop: nobody holds it, its place is free.
    share: the block is number `number` of sequence `key` too. load: it gets the content kept under
    `name`, and that is kept no longer. sink: from host memory to disk. discard: keep it no longer.
    """

    kind: Literal["save", "drop", "share", "load", "sink", "discard"]
    block: int = -1
    name: bytes = b""
    key: int = -1
    number: int = -1
