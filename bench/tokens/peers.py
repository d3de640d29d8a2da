"""Proxies between the same clients and the same mock: what only passing tokens on costs.

None of them keeps a reply: a client that loses its connection, or a proxy that dies, loses it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.tokens.load import OPENAI, OWN_CORE, Target, Tools, running, wait_until_ready
from tertulia.listening import free_port


class NotInstalled(Exception):
    """The program is not on the PATH, nor where `--peers` says."""


@contextmanager
def peer(tools: Tools, name: str, folder_of_programs: Path | None) -> Iterator[Target]:
    """The proxy with its own defaults, on the core that our process has else."""
    given = str(folder_of_programs) if folder_of_programs else None
    program = shutil.which(name, path=given) or shutil.which(name)
    if program is None:
        raise NotInstalled(name)
    folder, port = tools.new_folder(name), free_port()
    command, ready = PEERS[name](folder, port, tools.mock_port)
    with running(OWN_CORE, [program, *command], folder / "out.log") as process:
        wait_until_ready(port, ready)
        yield Target(port, (process.pid,), OPENAI)


def _nginx(folder: Path, port: int, mock_port: int) -> tuple[Sequence[Any], str]:
    config = folder / "nginx.conf"
    config.write_text(f"""
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 16384; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
  fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  upstream mock {{ server 127.0.0.1:{mock_port}; keepalive 256; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 120s;
    }}
  }}
}}
""")
    return ["-c", config], "/health"


def _router(_folder: Path, port: int, mock_port: int) -> tuple[Sequence[Any], str]:
    options = ["--host", "127.0.0.1", "--port", port, "--prometheus-port", free_port()]
    options += ["--worker-urls", f"http://127.0.0.1:{mock_port}", "--policy", "round_robin"]
    return options, "/health"


def _sglang_router(folder: Path, port: int, mock_port: int) -> tuple[Sequence[Any], str]:
    options, ready = _router(folder, port, mock_port)
    return ["launch", *options], ready


PEERS: Final[dict[str, Callable[[Path, int, int], tuple[Sequence[Any], str]]]] = {
    "nginx": _nginx,
    "vllm-router": _router,
    "sglang-router": _sglang_router,
}
