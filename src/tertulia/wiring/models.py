"""What the settings say of models and replicas, as the values that the lanes work with."""

from __future__ import annotations

from pathlib import Path

from tertulia.backends.replicas.fleet import Fleet, ReplicaAddress
from tertulia.backends.vocabulary import ModelVocabulary, VocabularyBroken, load_vocabulary
from tertulia.config import Settings
from tertulia.core.choice import AUTO
from tertulia.core.types import ModelState
from tertulia.replica.catalogue import model_named
from tertulia.replica.description import DescriptionUnreadable, read_description


def fixed_fleet(settings: Settings) -> Fleet:
    """The replicas of the configuration; models in the order that `auto` prefers."""
    replicas = tuple(
        ReplicaAddress(
            name=table.name,
            model=table.model,
            url=str(table.url).rstrip("/"),
            slots=table.slots,
            key=table.key.get_secret_value() if table.key else None,
            engine=table.engine,
            trusted=table.trusted,
            window=table.window_tokens,
        )
        for table in settings.replicas
    )
    served = {(table.pool, table.model): table for table in settings.replicas}
    models = tuple(
        ModelState(name=pool, served=model, state="starting")
        for pool, model in sorted(served, key=lambda pair: pair[0])
    )
    return Fleet(models, replicas)


def replica_key(settings: Settings) -> str | None:
    """The key of the replicas that register by themselves."""
    key = settings.fleet.replica_key
    return key.get_secret_value() if key else None


class Vocabularies:
    """Every model's vocabulary, each read once. What is not installed yet speaks as another.

    Those that replicas register with are looked for among the installed models.
    """

    def __init__(self, settings: Settings):
        self._installed = settings.models_folder
        self._folders: dict[str, Path] = {}
        self._loaded: dict[Path, ModelVocabulary] = {}
        for table in settings.replicas:
            self._folders.setdefault(table.model, table.vocabulary)
            self._folders.setdefault(table.pool, table.vocabulary)
        if settings.models.embedded:
            for name in ("small", settings.models.large):
                if name != "off":
                    folder = settings.models_folder / name
                    self._folders[model_named(name).served_id] = folder
                    self._folders["small" if name == "small" else "large"] = folder

    def of(self, model: str) -> ModelVocabulary:
        """The model's vocabulary, or one of a model that is there."""
        folder = self._folders.get(model)
        if folder is None and model != AUTO:
            folder = self._found(model)
        others = [f for f in self._folders.values() if f != folder]
        for candidate in ([folder] if folder else []) + others:
            if candidate in self._loaded:
                return self._loaded[candidate]
            if (candidate / "tokenizer.json").is_file():
                self._loaded[candidate] = load_vocabulary(candidate)
                return self._loaded[candidate]
        raise VocabularyBroken(f"no model is installed for {model!r}: run `tertulia doctor`")

    def _found(self, model: str) -> Path | None:
        for card in sorted(self._installed.glob("*/model.json")):
            try:
                served = read_description(card.parent).served_id
            except DescriptionUnreadable:
                continue
            self._folders.setdefault(served, card.parent)
        return self._folders.get(model)
