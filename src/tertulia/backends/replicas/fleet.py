"""What replicas there are: a static list, and the file in which `serve` says what it runs.

The file is replaced as a whole, so a reader never sees half of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tertulia.core.engines import EngineName
from tertulia.core.types import ModelState


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """One replica: where it listens, the model it serves and how many sequences it runs at once.

    `engine` is a kind of `core.engines`. `trusted` skips the vocabulary check, for one behind
    something that has no `/tokenize`. `window` is its own where replicas of a model differ.
    `incarnation` is known of those that report themselves.
    """

    name: str
    model: str
    url: str
    slots: int
    key: str | None = None
    engine: EngineName = "vllm"
    trusted: bool = False
    window: int | None = None
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Models in order of preference, and the replicas that serve them."""

    models: tuple[ModelState, ...] = ()
    replicas: tuple[ReplicaAddress, ...] = ()


def write_fleet(path: Path, fleet: Fleet) -> None:
    """Replaces the file. Only its owner may read it: it holds the replicas' keys."""
    made = path.with_suffix(".new")
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(fleet), file)
    made.replace(path)


def read_fleet(path: Path) -> Fleet:
    """The fleet in the file; an absent file is an empty fleet."""
    try:
        source: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return Fleet()
    return Fleet(
        tuple(ModelState(**model) for model in source["models"]),
        tuple(ReplicaAddress(**replica) for replica in source["replicas"]),
    )


@dataclass(slots=True)
class FleetSource:
    """The static list together with the file, read again only when it was replaced."""

    fixed: Fleet
    path: Path | None = None
    _stamp: tuple[int, int] | None = None
    _read: Fleet = field(default_factory=Fleet)

    def current(self) -> Fleet:
        """The whole fleet now."""
        if self.path is None:
            return self.fixed
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return self.fixed
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._stamp:
            self._read, self._stamp = read_fleet(self.path), stamp
        return Fleet(
            _merged(self.fixed.models, self._read.models), self.fixed.replicas + self._read.replicas
        )


def _merged(first: Sequence[ModelState], second: Sequence[ModelState]) -> tuple[ModelState, ...]:
    names = {model.name for model in first}
    return (*first, *(model for model in second if model.name not in names))
