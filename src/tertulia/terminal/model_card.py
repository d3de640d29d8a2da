"""`tertulia models show`: the card of one model, and for each claim where it is known from.

It must never state more than the catalogue, the description or the file itself says.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from tertulia.replica.card import WEIGHTS
from tertulia.replica.catalogue import CatalogueModel, UnknownModel, is_catalogued, model_named
from tertulia.replica.header import GgufRefused, Header, read_header
from tertulia.replica.hub import url_of
from tertulia.replica.shelf import complete_fields, folder_of, state_of
from tertulia.terminal.models import COLUMNS, Say, megabytes, sentence, size_of

_LABEL = 14


def show(name: str, models_dir: Path, say: Say, complain: Say, *, as_json: bool) -> int:
    """Says what is known of a model; the exit status."""
    try:
        folder = folder_of(name, models_dir)
        card = _card(name, folder, models_dir)
    except (UnknownModel, GgufRefused, OSError) as error:
        complain(sentence(error))
        return 1
    if as_json:
        say(json.dumps(card, ensure_ascii=False, indent=2))
        return 0
    for label, value in card.items():
        if value is not None:
            begin = f"{label.replace('_', ' '):<{_LABEL}}"
            say(
                textwrap.fill(str(value), COLUMNS, initial_indent=begin, subsequent_indent=" " * 14)
            )
    return 0


def _card(name: str, folder: Path, models_dir: Path) -> dict[str, Any]:
    fields = complete_fields(folder)
    catalogued = model_named(name) if is_catalogued(name) else None
    if fields is None:
        if catalogued is None:
            raise UnknownModel(f"{folder} is not a complete model: remove it")
        return _catalogue_card(catalogued, state_of(name, models_dir))
    header = read_header(folder / WEIGHTS)
    licence_from = fields.get("licence_from")
    if licence_from is None and catalogued is not None:
        licence_from = catalogued.licence.known_from
    architecture = header.architecture
    return {
        "name": name,
        "title": fields.get("title"),
        "state": state_of(name, models_dir),
        "served_as": fields.get("served_id"),
        "parameters": f"{header.n_parameters / 1e6:,.0f} million, as stored in the file",
        "quantisation": _quantisation(header),
        "architecture": _architecture(header),
        "window": f"{fields['window_tokens']} tokens; the file says "
        f"{header.fields.get(f'{architecture}.context_length', 'nothing')}",
        "vocabulary": _vocabulary(header, fields),
        "template": _template(fields),
        "licence": f"{fields.get('licence')}: {licence_from or 'not recorded from where'}",
        "in_the_file": _claims(header),
        "sampling": _sampling(fields.get("sampling")),
        "size": megabytes(size_of(folder)),
        "sha256": fields.get("gguf_sha256"),
        "fetched_as": fields.get("source_sha256"),
        "from": fields.get("origin") or "not recorded: installed by an older version",
        "made_from": fields.get("made_from"),
        "folder": str(folder.absolute()),
    }


def _catalogue_card(model: CatalogueModel, state: str) -> dict[str, Any]:
    return {
        "name": model.name,
        "title": model.title,
        "state": state,
        "served_as": model.served_id,
        "quantisation": model.requantise and f"{model.requantise}, made of the fetched file",
        "window": f"{model.window_tokens} tokens",
        "licence": f"{model.licence.upstream}: {model.licence.known_from}",
        "sampling": _sampling(vars(model.sampling)),
        "size": f"{megabytes(model.bytes_total)} to fetch",
        "fetched_as": model.sha256,
        "from": f"{len(model.archives)} package(s), or {url_of(model.hub)}",
    }


def _quantisation(header: Header) -> str:
    kinds = ", ".join(f"{kind} {count}" for kind, count in header.n_tensors_of.items())
    return f"{header.file_type} ({len(header.tensors)} tensors: {kinds})"


def _architecture(header: Header) -> str:
    name = header.architecture
    shape = [
        f"{header.fields[field]} {what}"
        for field, what in (
            (f"{name}.block_count", "layers"),
            (f"{name}.embedding_length", "wide"),
            (f"{name}.attention.head_count", "heads"),
        )
        if isinstance(header.fields.get(field), int)
    ]
    return ", ".join([name, *shape])


def _vocabulary(header: Header, fields: dict[str, Any]) -> str:
    kind = f"{header.text('tokenizer.ggml.model')}/{header.text('tokenizer.ggml.pre')}"
    n_tokens = len(header.fields.get("tokenizer.ggml.tokens", ()))
    n_control = len(fields.get("control_ids", ()))
    return f"{n_tokens:,} tokens ({kind}), {n_control} of them for the template alone"


def _template(fields: dict[str, Any]) -> str:
    text = str(fields.get("chat_template", ""))
    ends = [token for token in ("<|im_start|>", "<|start_header_id|>", "[INST]") if token in text]
    begins = f", turns begin with {ends[0]}" if ends else ""
    own = "; with a system text of its own if none is given" if "You are" in text else ""
    return f"{len(text):,} characters{begins}, replies end with {fields.get('eos_text')}{own}"


def _claims(header: Header) -> str | None:
    """What the file says of itself, which nobody has checked."""
    told = [
        f"{field} {text!r}"
        for field in ("name", "organization", "license")
        if (text := header.text(f"general.{field}"))
    ]
    return ", ".join(told) or None


def _sampling(sampling: Any) -> str | None:
    if not isinstance(sampling, dict):
        return None
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in sampling.items())
