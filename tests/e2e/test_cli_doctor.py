"""`tertulia doctor` on healthy, empty, broken and occupied places: it says what to do, and changes
nothing.
"""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tertulia.backends.migrations.sqlite import REVISIONS, migrate
from tertulia.cli import app
from tertulia.terminal.doctor import examine_port
from tertulia.terminal.findings import Finding, as_lines
from tertulia.terminal.machine import filesystem_of
from tests.e2e.processes import installed_models


def doctor(data_dir: Path, **settings: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Its exit status and its findings by name; on port 0, with no model wanted but the small."""
    given = {"TERTULIA_DATA_DIR": str(data_dir), "TERTULIA_SERVER__PORT": "0"}
    given |= {"TERTULIA_MODELS__LARGE": "off", **settings}
    ended = CliRunner().invoke(app, ["doctor", "--json"], env=given)
    told = json.loads(ended.stdout)
    assert told["ok"] == (ended.exit_code == 0)
    return ended.exit_code, {finding["name"]: finding for finding in told["findings"]}


def database(folder: Path) -> Path:
    path = folder / "tertulia.sqlite3"
    migrate(path)
    path.chmod(0o600)
    return path


def test_an_empty_folder_is_fit_for_a_first_start(tmp_path: Path) -> None:
    status, found = doctor(tmp_path / "data")
    assert status == 0
    assert "not there yet" in found["database"]["text"]
    assert found["model small"]["state"] == "warn"


def test_looking_creates_nothing(tmp_path: Path) -> None:
    doctor(tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_a_whole_database_is_told_with_its_schema(tmp_path: Path) -> None:
    database(tmp_path)
    status, found = doctor(tmp_path)
    assert status == 0
    assert f"schema {REVISIONS[-1]}, whole" in found["database"]["text"]


def test_looking_at_a_database_leaves_no_file_behind(tmp_path: Path) -> None:
    with closing(sqlite3.connect(database(tmp_path))) as opened:
        opened.execute("PRAGMA journal_mode = WAL")
    assert doctor(tmp_path)[1]["database"]["state"] == "ok"
    assert [path.name for path in tmp_path.iterdir()] == ["tertulia.sqlite3"]


def test_a_database_in_use_is_examined_with_what_is_not_yet_in_its_file(tmp_path: Path) -> None:
    with closing(sqlite3.connect(database(tmp_path))) as opened:
        opened.execute("PRAGMA journal_mode = WAL")
        opened.execute("UPDATE alembic_version SET version_num = '9999'")
        opened.commit()
        assert "newer version" in doctor(tmp_path)[1]["database"]["advice"]


def test_a_broken_database_fails_and_a_backup_is_advised(tmp_path: Path) -> None:
    path = database(tmp_path)
    with closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("CREATE TABLE filling AS SELECT randomblob(90000) AS blob")
    with path.open("r+b") as file:
        file.seek(-4096, 2)  # far from the schema, which still reads well
        file.write(b"\xff" * 4096)
    status, found = doctor(tmp_path)
    assert (status, found["database"]["state"]) == (1, "fail")
    assert "restore a backup" in found["database"]["advice"]


def test_a_file_that_is_no_database_fails(tmp_path: Path) -> None:
    (tmp_path / "tertulia.sqlite3").write_text("not a database, whatever its name is " * 100)
    assert doctor(tmp_path)[1]["database"]["state"] == "fail"


def test_a_database_of_a_newer_version_fails(tmp_path: Path) -> None:
    with closing(sqlite3.connect(database(tmp_path))) as opened, opened:
        opened.execute("UPDATE alembic_version SET version_num = '9999'")
    assert "newer version" in doctor(tmp_path)[1]["database"]["advice"]


def test_a_database_that_others_may_read_is_a_warning(tmp_path: Path) -> None:
    database(tmp_path).chmod(0o644)
    status, found = doctor(tmp_path)
    assert (status, found["database mode"]["state"]) == (0, "warn")


def test_a_half_made_model_fails(tmp_path: Path) -> None:
    (tmp_path / "models" / "small").mkdir(parents=True)
    status, found = doctor(tmp_path)
    assert status == 1
    assert "tertulia models pull small" in found["model small"]["advice"]


@pytest.mark.model
def test_a_damaged_tokenizer_fails_where_sizes_alone_look_well(tmp_path: Path) -> None:
    installed = installed_models() / "small"
    copy = tmp_path / "models" / "small"
    copy.mkdir(parents=True)
    (copy / "model.gguf").symlink_to(installed / "model.gguf")
    shutil.copy(installed / "model.json", copy)
    (copy / "tokenizer.json").write_bytes((installed / "tokenizer.json").read_bytes() + b" ")
    assert doctor(tmp_path)[1]["model small"]["state"] == "fail"


def test_settings_that_can_not_be_used_fail_and_are_named(tmp_path: Path) -> None:
    status, found = doctor(tmp_path, TERTULIA_SERVER__PORT="many")
    assert status == 1
    assert "server.port" in found["settings"]["text"]


def test_a_replica_that_does_not_answer_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").touch()
    with bound() as taken:
        replica = {
            "name": "far",
            "model": "big",
            "url": f"http://127.0.0.1:{taken}",
            "vocabulary": str(tmp_path),
        }
        settings = {"TERTULIA_REPLICAS": json.dumps([replica])}
        status, found = doctor(tmp_path / "data", **settings)
    assert (status, found["replica far"]["state"]) == (0, "warn")


def test_a_free_port_is_free() -> None:
    with bound() as port:
        pass
    assert examine_port("127.0.0.1", port).state == "ok"


def test_a_port_that_another_program_has_fails() -> None:
    with answering(200, {"hello": "I am something else"}) as port:
        found = examine_port("127.0.0.1", port)
    assert found.state == "fail"
    assert "another program" in found.text


@pytest.mark.parametrize(
    ("status", "missing", "expected"), [(200, [], "ok"), (503, ["models"], "warn")]
)
def test_tertulia_itself_is_recognised(status: int, missing: list[str], expected: str) -> None:
    with answering(status, {"status": "ready", "missing": missing, "models": []}) as port:
        found = examine_port("127.0.0.1", port)
    assert found.state == expected
    assert "Tertulia is running" in found.text


def test_an_address_of_another_machine_fails() -> None:
    assert examine_port("192.0.2.1", 8000).state == "fail"


def test_the_innermost_mount_names_the_file_system(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk / ext4 rw 0 0\nserver:/x {tmp_path.parent} nfs4 rw 0 0\n")
    assert filesystem_of(tmp_path / "not" / "there", mounts) == "nfs4"
    assert filesystem_of(Path("/"), mounts) == "ext4"


def test_findings_are_a_line_each_with_advice_below() -> None:
    findings = [Finding("port", "ok", "free"), Finding("database", "fail", "gone", "restore it")]
    assert as_lines(findings).splitlines() == [
        "ok    port      free",
        "fail  database  gone",
        "                -> restore it",
    ]


@contextmanager
def bound() -> Iterator[int]:
    """A port that is taken and answers nothing."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@contextmanager
def answering(status: int, document: dict[str, object]) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            """Nothing."""

        def do_GET(self) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
