"""Finding the right server and being let in; answers that go to whoever asked, or nowhere."""

from __future__ import annotations

import asyncio
import random
import re
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import hiredis
import pytest

from tertulia.backends.valkey import UnfitServer, ValkeyBackend
from tertulia.backends.valkey.address import Address, address_of
from tertulia.backends.valkey.client import Client
from tertulia.backends.valkey.connection import IN_FLIGHT, Connection, TooMuchWaits, pack
from tertulia.backends.valkey.node import state_of
from tertulia.backends.valkey.scripts import SCRIPTS
from tertulia.backends.valkey.slots import slot_of
from tertulia.config import load_settings
from tertulia.core.fleet import Home, ReplicaReport
from tertulia.core.types import Append
from tertulia.drills.valkey_server import ValkeyServer, ValkeyServers
from tertulia.ports import StoreFull, StoreUnavailable
from tertulia.wiring.registering import registration
from tests.conformance.world import entries
from tests.valkey.cancels import cancel_at_random
from tests.valkey.conftest import Open
from tests.valkey.proxy import Proxy
from tests.valkey.writing import soon

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
PROMPT_S = 20.0


def test_a_url_names_server_credentials_and_encryption() -> None:
    assert address_of("valkey://cache") == Address("cache", 6379)
    full = address_of("redis://an%40a:s%3Acret@[::1]:7000/3")
    assert full == Address("::1", 7000, user="an@a", password="s:cret", database=3)
    assert address_of("valkeys://cache:1").tls is not None
    assert address_of("rediss://:pw@cache:1").password == "pw"
    assert "s:cret" not in repr(full)
    for wrong in ("cache:6379", "http://cache", "valkey://", "valkey://cache:x", "valkey://c/db"):
        with pytest.raises(ValueError, match="Valkey URL"):
            address_of(wrong)


async def test_servers_are_looked_for_however_long_they_are_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def look(client: Client) -> None:
        """Finds nothing."""

    async def pause(client: Client, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1_100:  # 2 to that power is no float
            raise asyncio.CancelledError

    monkeypatch.setattr(Client, "_look", look)
    monkeypatch.setattr(Client, "_pause", pause)
    client = Client([address_of("valkey://nowhere")], patience_s=1.0, jitter=lambda: 0.5)
    with pytest.raises(asyncio.CancelledError):
        await client._watch()
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1.0


@pytest.mark.processes
def test_a_key_lives_in_the_slot_of_its_braces_as_the_server_says(
    valkey_cluster: ValkeyServers,
) -> None:
    for key in ("123456789", "{123456789}.x", "x{a}{b}", "{}x", "a}b{c", "{{a}b}", "é{ö}"):
        assert slot_of(key) == valkey_cluster[0].command("CLUSTER", "KEYSLOT", key), key


def test_every_script_says_what_it_is_for() -> None:
    for script in SCRIPTS:
        first = script.body.decode().splitlines()[0]
        assert first.startswith("-- "), script.name
        assert first.endswith((".", ":")), script.name


def info(**told: str) -> str:
    usual = {"redis_version": "7.2.4", "role": "master", "maxmemory": "100"}
    return "\r\n".join(f"{name}:{value}" for name, value in (usual | told).items())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (info(redis_version="6.2.14"), "7.0 is the oldest"),
        (info(maxmemory_policy="allkeys-lru"), "throws away running replies"),
        (info(maxmemory_policy="volatile-lru"), "set it to noeviction"),
        ("redis_version:7.2.4\r\nsentinel_masters:1", "no Valkey server that keeps data"),
    ],
)
def test_a_server_that_would_lose_logs_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(UnfitServer, match=why):
        state_of(text, Address("cache"))


@pytest.mark.parametrize("policy", ["noeviction", "volatile-ttl"])
def test_a_server_that_keeps_running_replies_is_taken(policy: str) -> None:
    state = state_of(info(maxmemory_policy=policy, connected_slaves="2"), Address("cache"))
    assert (state.is_primary, state.is_cluster, state.replicas) == (True, False, 2)
    unlimited = info(maxmemory="0", maxmemory_policy="allkeys-lru")
    assert state_of(unlimited, Address("cache")).is_primary


@pytest.mark.processes
async def test_an_unfit_server_ends_the_start_with_the_reason(tmp_path: Path, opened: Open) -> None:
    options = (("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru"))
    server = ValkeyServer(tmp_path / "one", *options).start()
    try:
        with pytest.raises(UnfitServer, match="maxmemory-policy allkeys-lru"):
            await opened(server.url)
    finally:
        server.kill()


@pytest.mark.processes
async def test_only_who_knows_the_password_is_let_in(tmp_path: Path, opened: Open) -> None:
    server = ValkeyServer(tmp_path / "one").start()
    server.command("CONFIG", "SET", "requirepass", "s3cret")
    try:
        for wrong in ("", ":wrong@"):
            with pytest.raises(UnfitServer, match="does not let us in"):
                await opened(server.url.replace("//", f"//{wrong}"))
        backend = await opened(server.url.replace("//", "//:s3cret@"))
        assert await backend.log.fence("m_1", 1, 1) is not None
        backend = await opened(server.url.replace("//", "//default:s3cret@"))
        assert await backend.log.fence("m_1", 2, 1) is not None
    finally:
        server.kill()


@pytest.mark.processes
async def test_a_user_needs_no_more_than_is_said(own_server: ValkeyServer, opened: Open) -> None:
    """The rights that docs/howto/valkey.md names are enough."""
    page = (ROOT / "docs/howto/valkey.md").read_text()
    (rights,) = re.findall(r"^ACL SETUSER tertulia (.+)$", page, re.MULTILINE)
    own_server.command("ACL", "SETUSER", "tertulia", *rights.replace("…", "pw").split())
    backend = await opened(own_server.url.replace("//", "//tertulia:pw@"))
    await backend.log.fence("m_1", 1, 1)
    assert await backend.log.append("m_1", 1, 1, entries(1, 1)) is Append.DONE
    assert await backend.log.reseed("m_1", 1, 1, entries(1, 2)) is Append.DONE
    assert await backend.log.read("m_1", 0) is not None
    await backend.log.drop(reply_ids=["m_1"])
    await backend.log.bury(["m_1"])
    await backend.homes.move("c_1", Home("a", 1))
    assert await backend.homes.find("c_1") == Home("a", 1)
    await backend.registry.report(ReplicaReport("a", "i", "http://127.0.0.1:1", "m", 4))
    assert len(await backend.registry.reports()) == 1
    await backend.registry.leave("a", "i")
    backend.bell.ring("turns")
    await backend.bell.wait("other", timeout_s=0.05)
    assert own_server.command("ACL", "LOG") == []


@pytest.mark.processes
async def test_a_registry_that_lets_nobody_in_is_away_and_ends_no_engine(
    own_server: ValkeyServer, tmp_path: Path
) -> None:
    own_server.command("CONFIG", "SET", "requirepass", "s3cret")
    config = tmp_path / "tertulia.toml"
    config.write_text(f'[fleet]\ndatabase = "postgresql://b/c"\nvalkey = ["{own_server.url}"]\n')
    way = registration(load_settings(config), name=None, url=None, pool="large")
    with pytest.raises(StoreUnavailable, match="does not let us in"):
        async with way.registry():
            pass


@pytest.mark.processes
async def test_a_full_server_says_so(own_server: ValkeyServer, opened: Open) -> None:
    backend = await opened(own_server.url)
    await backend.log.fence("m_1", 1, 1)
    own_server.command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreFull):
        await backend.log.append("m_1", 1, 1, entries(1, 1))


async def test_a_server_that_is_not_there_is_waited_for(own_server: ValkeyServer) -> None:
    own_server.kill()
    backend = await ValkeyBackend.open([own_server.url], budget_s=0.2)
    try:
        with pytest.raises(StoreUnavailable):
            await backend.log.fence("m_1", 1, 1)
        with pytest.raises(StoreUnavailable):
            await backend.homes.find("c_1")
        backend.bell.ring("turns")
        own_server.start()
        async with asyncio.timeout(PROMPT_S):
            while True:
                try:
                    assert await backend.log.fence("m_1", 1, 1) is not None
                    break
                except StoreUnavailable:
                    continue
    finally:
        await backend.close()


async def test_after_the_close_every_call_fails_at_once(server: ValkeyServer) -> None:
    backend = await ValkeyBackend.open([server.url])
    waiting = asyncio.create_task(backend.log.wait("m_1", 1, 0, timeout_s=0.2))
    await asyncio.sleep(0)
    await backend.close()
    with pytest.raises(StoreUnavailable):
        await backend.log.fence("m_1", 1, 1)
    await waiting


async def test_no_cancelled_call_gives_its_answer_to_another(server: ValkeyServer) -> None:
    """The pooled connection of an earlier product gave one user's data to another."""
    wrong, cancelled = await cancel_at_random([server.url], calls=2000, seed=7)
    assert wrong == 0
    assert cancelled > 300


async def test_what_can_wait_is_bounded(own_server: ValkeyServer) -> None:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: Connection(patience_s=60, on_lost=lambda _: None), "127.0.0.1", own_server.port
    )
    own_server.freeze()
    waiting = [connection.send(pack("PING"), loop.time() + 60) for _ in range(IN_FLIGHT)]
    with pytest.raises(TooMuchWaits):
        connection.send(pack("PING"), loop.time() + 60)
    own_server.thaw()
    assert set(await asyncio.gather(*waiting)) == {b"PONG"}
    connection.fail("done")


@pytest.mark.processes
async def test_a_moved_slot_is_followed(valkey_cluster: ValkeyServers) -> None:
    client = await Client.open(valkey_cluster.urls[:1], patience_s=1.0, jitter=random.random)
    slot = slot_of("key")
    ids = [server.command("CLUSTER", "MYID") for server in valkey_cluster.servers]
    owner = slot * 3 // 16384
    other = (owner + 1) % 3
    giving, taking = valkey_cluster[owner], valkey_cluster[other]
    try:
        await client.call("key", "SET", "key", "1", budget_s=1.0)
        taking.command("CLUSTER", "SETSLOT", str(slot), "IMPORTING", ids[owner])
        giving.command("CLUSTER", "SETSLOT", str(slot), "MIGRATING", ids[other])
        giving.command("MIGRATE", "127.0.0.1", str(taking.port), "key", "0", "1000")
        assert await client.call("key", "GET", "key", budget_s=1.0) == b"1"  # asked there: ASK
        for server in (taking, giving):
            server.command("CLUSTER", "SETSLOT", str(slot), "NODE", ids[other])
        assert await client.call("key", "GET", "key", budget_s=0.3) == b"1"  # sent on: MOVED
    finally:
        await client.close()
        for server in valkey_cluster.servers:
            server.command("FLUSHALL")
        for server in (giving, taking):
            server.command("CLUSTER", "SETSLOT", str(slot), "NODE", ids[owner])


class Quarrel:
    """Two servers of a cluster, each of which says that the other has every slot."""

    def __init__(self) -> None:
        self.n_sent_on = 0
        self.ports: list[int] = []
        self.gone: list[asyncio.Event] = []

    async def serve(self, near: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        here = out.get_extra_info("sockname")[1]
        other = next(port for port in self.ports if port != here)
        self.gone.append(asyncio.Event())
        gone = self.gone[-1]
        commands = hiredis.Reader()
        with suppress(ConnectionError):
            while data := await near.read(65536):
                commands.feed(data)
                while (words := commands.gets()) is not False:
                    out.write(self.answer(words, here, other))
        out.transport.abort()
        gone.set()

    def answer(self, words: list[bytes], here: int, other: int) -> bytes:
        match words[0]:
            case b"INFO":
                return bulk(info(cluster_enabled="1"))
            case b"CLUSTER" if words[1] == b"INFO":
                return bulk("cluster_state:ok\r\ncluster_current_epoch:1")
            case b"CLUSTER":
                host = b"$9\r\n127.0.0.1\r\n"
                return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n%b:%d\r\n" % (host, here)
            case b"GET":
                self.n_sent_on += 1
                return b"-MOVED 1 127.0.0.1:%d\r\n" % other
            case _:
                return b"+OK\r\n"


def bulk(text: str) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text.encode())


async def test_servers_that_send_a_command_to_and_fro_are_not_believed_for_ever() -> None:
    quarrel = Quarrel()
    servers = [await asyncio.start_server(quarrel.serve, "127.0.0.1", 0) for _ in range(2)]
    quarrel.ports = [server.sockets[0].getsockname()[1] for server in servers]
    urls = [f"valkey://127.0.0.1:{port}" for port in quarrel.ports]
    client = await Client.open(urls, patience_s=1.0, jitter=random.random)
    try:
        async with asyncio.timeout(PROMPT_S):
            with pytest.raises(StoreUnavailable):
                await client.call("key", "GET", "key", budget_s=0.4)
        assert 2 <= quarrel.n_sent_on < 100, "sent to and fro as fast as it goes"
    finally:
        await client.close()
        for server in servers:
            server.close()
        async with asyncio.timeout(PROMPT_S):
            await asyncio.gather(*(gone.wait() for gone in quarrel.gone))


async def test_a_server_alone_sends_nobody_elsewhere(server: ValkeyServer) -> None:
    """Else each such answer would be a connection, with our credentials, to wherever it says."""
    client = await Client.open([server.url], patience_s=1.0, jitter=random.random)
    try:
        said = ("EVAL", "return {err = ARGV[1]}", 1, "key")
        for word in ("MOVED 1 127.0.0.1:9", "ASK 1 127.0.0.1:9", "MOVED", "MOVED 1 nowhere"):
            with pytest.raises(StoreUnavailable):
                await client.call("key", *said, word, budget_s=0.1)
        assert len(client._nodes) == 1
    finally:
        await client.close()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a certificate for 127.0.0.1 in one file."""
    made, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    for_whom = ("-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1")
    command = ("openssl", "req", "-x509", *kind, *for_whom, "-keyout", str(key), "-out", str(made))
    subprocess.run(command, check=True, capture_output=True)
    made.write_text(made.read_text() + key.read_text())
    return made


async def test_an_encrypted_server_is_trusted_as_the_machine_says(
    server: ValkeyServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(certificate)
    async with Proxy(server.port, tls=inside) as proxy:
        url = proxy.url.replace("valkey:", "valkeys:")
        stranger = await ValkeyBackend.open([url], budget_s=0.2)
        with pytest.raises(StoreUnavailable):
            await stranger.log.fence("m_1", 1, 1)
        await stranger.close()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        backend = await ValkeyBackend.open([url])
        assert await backend.log.fence("m_1", 1, 1) is not None
        await backend.close()


async def test_a_bell_that_nobody_can_hear_elsewhere_never_fails(
    own_server: ValkeyServer, opened: Open
) -> None:
    backend = await opened(own_server.url)
    own_server.kill()
    await soon(lambda: not backend._client.node_of(0))
    for _ in range(100):
        backend.bell.ring("turns")
    async with asyncio.timeout(PROMPT_S):
        await backend.bell.wait("turns", timeout_s=60)
