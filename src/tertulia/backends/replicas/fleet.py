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

from tertulia.core.types import ModelState


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """One replica: where it listens, the model it serves and how many sequences it runs at once.

    `trusted` skips the vocabulary check, for an engine that has no `/tokenize`; `priorities` says
    that it takes a request's priority, which vLLM refuses unless it was told to schedule by it.
    `own_engine` says that it is Tertulia's: it keeps the system prompt once for all owners, and can
    forget a conversation.
    """

    name: str
    model: str
    url: str
    slots: int
    key: str | None = None
    trusted: bool = False
    priorities: bool = False
    own_engine: bool = False


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
