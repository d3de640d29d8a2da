"""Makes the folder that `vocabulary` of a [[replicas]] entry names, from a model's own files.

Usage: python examples/describe_model.py MODEL_FOLDER OUTPUT_FOLDER WINDOW_TOKENS
MODEL_FOLDER holds tokenizer.json and tokenizer_config.json, as published with the weights;
WINDOW_TOKENS is what the replica serves (vLLM's --max-model-len).
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tertulia.backends.vocabulary import VocabularyBroken, load_vocabulary


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    model, output, window_tokens = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    settings = json.loads((model / "tokenizer_config.json").read_text())
    described = {
        "window_tokens": window_tokens,
        "chat_template": template_of(model, settings),
        "bos_text": token_text(settings.get("bos_token")),
        "eos_text": token_text(settings.get("eos_token")),
        "adds_bos": bool(settings.get("add_bos_token", False)),
        "control_ids": {
            token["content"]: token["id"]
            for token in tokenizer.get("added_tokens", [])
            if token["special"]
        },
    }
    output.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(model / "tokenizer.json", output / "tokenizer.json")
    digest = hashlib.sha256((output / "tokenizer.json").read_bytes()).hexdigest()
    described["tokenizer_sha256"] = digest
    (output / "model.json").write_text(json.dumps(described, ensure_ascii=False, indent=1))
    try:
        load_vocabulary(output)
    except VocabularyBroken as error:
        sys.exit(f"Tertulia can't use this model: {error}")
    print(f'vocabulary = "{output.absolute()}"')


def template_of(model: Path, settings: dict[str, Any]) -> str:
    """The chat template: a file of its own, or a setting, of which there may be several."""
    alone = model / "chat_template.jinja"
    if alone.is_file():
        return alone.read_text()
    given = settings.get("chat_template")
    if isinstance(given, list):
        given = next((each["template"] for each in given if each["name"] == "default"), None)
    if not isinstance(given, str):
        sys.exit(f"{model} has no chat template: it is not a model for chats")
    return given


def token_text(token: Any) -> str:
    """A token is written as a text or as an object with a text."""
    return str(token["content"]) if isinstance(token, dict) else str(token or "")


if __name__ == "__main__":
    main()
