"""`tertulia doctor`: everything that a start needs, looked at one by one, each with what helps.

It reads and asks; it must never change, create or send anything that matters.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import httpx2

from tertulia import __version__
from tertulia.config import ConfigError, Settings, load_settings
from tertulia.core.engines import ENGINES, EngineKind
from tertulia.listening import bind
from tertulia.replica.catalogue import CatalogueModel, model_named
from tertulia.replica.shelf import is_whole, state_of
from tertulia.terminal.client import is_loopback, json_object
from tertulia.terminal.database import examine_data
from tertulia.terminal.findings import Finding
from tertulia.terminal.machine import examine_machine
from tertulia.terminal.stores import examine_stores

# Whoever is well answers on this machine within milliseconds.
_ANSWER_S = 3.0
# Tertulia's own answers are a few hundred bytes.
_ANSWER_BYTES = 65_536


def examine(config: Path | None) -> list[Finding]:
    """Looks at everything; with settings that can't be used, at what needs none."""
    version = Finding("tertulia", "ok", __version__)
    try:
        settings = load_settings(config)
    except ConfigError as error:
        wrong = Finding("settings", "fail", str(error).replace("\n", "; "), "correct the setting")
        return [version, *examine_machine(Path()), wrong]
    return [
        version,
        *examine_machine(settings.data_dir),
        _settings(config),
        *_stores(settings),
        *_models(settings),
        *_replicas(settings),
        examine_port(settings.server.host, settings.server.port),
    ]


def examine_port(host: str, port: int) -> Finding:
    """Whether the port is free, or who answers there."""
    shown = f"[{host}]" if ":" in host else host
    where = f"{shown}:{port}"
    other = "choose another port: `--port`, or server.port in the settings"
    if port == 0:
        return Finding("port", "ok", "any free one")
    try:
        taken = _is_taken(host, port)
    except OSError as error:
        return Finding("port", "fail", f"{where} can't be used: {error.strerror or error}", other)
    if not taken:
        return Finding("port", "ok", f"{where} is free")
    local = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104  # read, not bound
    answer = _asked(f"http://{local.get(host, shown)}:{port}/readyz", None)
    if answer is None or not {"status", "missing", "models"} <= answer.keys():
        return Finding("port", "fail", f"{where} is in use by another program", other)
    if answer["missing"]:
        text = f"Tertulia is running at {where} and waits for: {', '.join(answer['missing'])}"
        return Finding("port", "warn", text, "give it a moment, then read its log")
    return Finding("port", "ok", f"Tertulia is running at {where}: {answer['status']}")


def _stores(settings: Settings) -> list[Finding]:
    if settings.fleet.database is not None:
        return examine_stores(settings)
    return examine_data(settings.data_dir, settings.database)


def _settings(config: Path | None) -> Finding:
    path = config or Path("tertulia.toml")
    if path.is_file():
        return Finding("settings", "ok", str(path.absolute()))
    return Finding("settings", "ok", "no file: defaults and the environment")


def _models(settings: Settings) -> list[Finding]:
    if not settings.models.embedded:
        return []
    wanted = ["small"] + [name for name in (settings.models.large,) if name != "off"]
    return [_model(model_named(name), settings.models_folder) for name in wanted]


def _model(model: CatalogueModel, models_dir: Path) -> Finding:
    name, state = f"model {model.name}", state_of(model.name, models_dir)
    pull = f"`tertulia models pull {model.name}`"
    if state == "no":
        text = f"{model.title} is not installed; `tertulia serve` fetches it"
        return Finding(name, "warn", text, f"to have it before: {pull}")
    folder = models_dir / model.name
    if state == "damaged" or not is_whole(folder):
        text = f"{folder} is not a complete {model.title}"
        return Finding(name, "fail", text, f"`tertulia models remove {model.name}`, then {pull}")
    return Finding(name, "ok", f"{model.title}, {model.licence.upstream}, in {folder}")


def _replicas(settings: Settings) -> list[Finding]:
    findings = []
    for table in settings.replicas:
        url = str(table.url).rstrip("/")
        if not (table.vocabulary / "tokenizer.json").is_file():
            text = f"{table.vocabulary} holds no tokenizer.json"
            advice = "set its `vocabulary` to a folder with tokenizer.json and model.json"
            findings.append(Finding(f"replica {table.name}", "fail", text, advice))
            continue
        key = table.key.get_secret_value() if table.key else None
        answer = _asked(f"{url}/v1/models", key)
        served = [model.get("id") for model in answer.get("data", ())] if answer else []
        if table.model in served:
            able = _abilities(url, key, ENGINES[table.engine])
            found = Finding(f"replica {table.name}", "ok", f"{url} serves {table.model}{able}")
        elif answer is not None:
            text = f"{url} answers and does not serve {table.model}"
            advice = f"set its `model` to one of: {', '.join(map(str, served)) or 'none'}"
            found = Finding(f"replica {table.name}", "fail", text, advice)
        else:
            advice = "start it, or correct its `url` and `key`"
            found = Finding(f"replica {table.name}", "warn", f"{url} does not answer", advice)
        findings.append(found)
    return findings


def _abilities(url: str, key: str | None, engine: EngineKind) -> str:
    """What of the dialect it speaks beyond the least, as far as a look can tell."""
    version = (_asked(f"{url}/version", key) or {}).get("version")
    how = ""
    if engine.abort_takes_list:  # others can't be asked without naming a reply
        is_taken = _takes_aborts(url + engine.abort_path, key, engine)
        how = f", {'stops by id' if is_taken else 'stops when its line is closed'}"
    return f", version {version}{how}" if version else how


def _takes_aborts(url: str, key: str | None, engine: EngineKind) -> bool:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx2.Client(timeout=_ANSWER_S, trust_env=not is_loopback(url)) as client:
            # Ending nothing changes nothing.
            answer = client.post(url, headers=headers, json={engine.abort_field: []})
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return False
    return answer.status_code == 200


def _is_taken(host: str, port: int) -> bool:
    try:
        bind(host, port).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return True
        raise
    return False


def _asked(url: str, key: str | None) -> dict[str, Any] | None:
    """The JSON object at an address; None when nothing of the kind comes back."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with (
            httpx2.Client(timeout=_ANSWER_S, trust_env=not is_loopback(url)) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            body = b""
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > _ANSWER_BYTES:
                    return None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError):
        return None
    return json_object(body)
