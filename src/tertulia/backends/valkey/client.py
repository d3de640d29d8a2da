"""Commands to whatever Valkey server has their key: one server, one of a failover pair, a cluster.

Everything sent through `call` and `run` may be carried out twice: after a lost connection it is
sent again, until its time is up. Nobody waits longer than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import hiredis
import structlog

from tertulia.backends.bell import Sleepers
from tertulia.backends.valkey.address import Address, address_of
from tertulia.backends.valkey.connection import ConnectionLost, NoAnswer, TooMuchWaits, pack
from tertulia.backends.valkey.feed import Feed
from tertulia.backends.valkey.node import Node, UnfitServer
from tertulia.backends.valkey.scripts import Script
from tertulia.backends.valkey.slots import SLOTS, primaries_of, slot_of
from tertulia.ports import StoreFull, StoreUnavailable

_log = structlog.get_logger(__name__)

# A healthy server is looked at this often: another may have become the primary, and a connection
# on which nothing comes may be half open.
_LOOK_S: Final = 1.0
# After a look that found too little: first, and at most, so long; a look that was asked for comes
# after the first at the earliest.
_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0
# So often is it doubled: no power of two may grow with the hours that a server is away.
_DOUBLED: Final = 6
# What open() waits for a server: one that starts beside us needs a moment.
_OPEN_S: Final = 2.0
# Two servers that each take the other for a slot's owner would send a command to and fro: after so
# many steps it waits for a look, which finds out who is right.
_SENT_ON: Final = 3
# These pass by themselves or by looking again: a failover, a moving slot, a server that loads.
_PASSING: Final = frozenset(
    ("CLUSTERDOWN", "LOADING", "MASTERDOWN", "NOREPLICAS", "READONLY", "TRYAGAIN", "BUSY")
)


class Client:
    """All of a process's commands to Valkey. Use `open`, and `close` at the end.

    Invariant: `_nodes` are exactly the servers whose connections are kept; `_by_slot` names, for
    each slot, the primary that has it, as far as it is known.
    """

    def __init__(
        self, addresses: Sequence[Address], *, patience_s: float, jitter: Callable[[], float]
    ) -> None:
        self._given = tuple(addresses)
        self._patience_s = patience_s
        self._jitter = jitter
        self._nodes: dict[tuple[str, int], Node] = {}
        self._by_slot: list[Node | None] = [None] * SLOTS
        self._is_cluster = False
        self._wanted = asyncio.Event()
        self._looked = Sleepers()
        self._unfit: dict[tuple[str, int], str] = {}
        self._watching: asyncio.Task[None] | None = None
        self.feed = Feed(self)
        for address in addresses:
            self._node(address)

    @classmethod
    async def open(
        cls, urls: Sequence[str], *, patience_s: float, jitter: Callable[[], float]
    ) -> Client:
        """A client that has found its servers, or goes on looking for them if none is there.

        UnfitServer if one is there that can't be used; ValueError for a URL that is none.
        """
        if not urls:
            raise ValueError("name at least one Valkey server")
        client = cls([address_of(url) for url in urls], patience_s=patience_s, jitter=jitter)
        client._watching = asyncio.get_running_loop().create_task(client._watch())
        with suppress(StoreUnavailable):
            await client._until_known(0, asyncio.get_running_loop().time() + _OPEN_S)
        if client._unfit:
            await client.close()
            raise UnfitServer("; ".join(client._unfit.values()))
        return client

    async def close(self) -> None:
        """Ends every connection; calls under way become StoreUnavailable."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for node in self._nodes.values():
            node.close()

    async def call(self, key: str, *words: str | bytes | int | float, budget_s: float) -> Any:
        """The answer to a command about `key`; StoreUnavailable if there is none in time."""
        return _fine(await self._deliver(key, pack(*words), budget_s))

    async def run(
        self, script: Script, keys: Sequence[str], *words: str | bytes | int, budget_s: float
    ) -> Any:
        """The answer of a script on keys of one slot."""
        packed = pack("EVALSHA", script.sha, len(keys), *keys, *words)
        answer = await self._deliver(keys[0], packed, budget_s)
        if isinstance(answer, hiredis.ReplyError) and str(answer).startswith("NOSCRIPT"):
            packed = pack("EVAL", script.body, len(keys), *keys, *words)
            answer = await self._deliver(keys[0], packed, budget_s)
        return _fine(answer)

    def tell(self, key: str, *words: str | bytes | int) -> None:
        """Sends a command if that is possible now; what becomes of it is not told."""
        node = self.node_of(slot_of(key))
        if node is None or node.commands is None:
            return
        with suppress(ConnectionLost, TooMuchWaits):
            deadline = asyncio.get_running_loop().time() + self._patience_s
            node.commands.send(pack(*words), deadline).add_done_callback(_ignore)

    def node_of(self, slot: int) -> Node | None:
        """The primary that has the slot, as far as it is known."""
        return self._by_slot[slot]

    def look_soon(self) -> None:
        """Something is not as it was: look again, without waiting for the next second."""
        self._wanted.set()

    async def looked(self, deadline: float) -> None:
        """Returns after the next look, or StoreUnavailable when `deadline` has passed."""
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0 or self._watching is None or self._watching.cancelled():
            raise StoreUnavailable("Valkey can't be reached")
        if self._watching.done():
            self._watching.result()  # a fault of ours ended it
        self.look_soon()
        await self._looked.sleep("", timeout_s=left)

    async def _deliver(self, key: str, packed: bytes, budget_s: float) -> Any:
        """The server's answer, which may be an error that passes with nothing."""
        deadline = asyncio.get_running_loop().time() + budget_s
        asked: Node | None = None
        sent_on = 0
        while True:
            # Without a cluster one server has all slots: the hash would be work for nothing.
            slot = slot_of(key) if self._is_cluster else 0
            node = asked or self._by_slot[slot]
            if node is not None and node.commands is not None:
                try:
                    if asked is not None:
                        node.commands.send(_ASKING, deadline).add_done_callback(_ignore)
                    answer = await node.commands.send(packed, deadline)
                except ConnectionLost:
                    asked = None
                except NoAnswer:
                    raise StoreUnavailable("Valkey did not answer in time") from None
                except TooMuchWaits:
                    raise StoreUnavailable("too much waits for Valkey") from None
                else:
                    if not isinstance(answer, hiredis.ReplyError):
                        return answer
                    word, _, rest = str(answer).partition(" ")
                    if word not in _PASSING and word not in ("MOVED", "ASK"):
                        return answer
                    found = self._sent_on(word, rest, slot)
                    asked = found if word == "ASK" else None
                    sent_on += 1
                    if found not in (None, node) and sent_on % _SENT_ON:
                        continue
            await self.looked(deadline)

    def _sent_on(self, word: str, rest: str, slot: int) -> Node | None:
        """The node that a redirection names, if it can be used at once."""
        if word not in ("MOVED", "ASK"):
            return None
        host, _, port = rest.rpartition(" ")[2].rpartition(":")
        if not self._is_cluster or not port.isdecimal():
            return None  # no other server has a reason to
        node = self._node(self._given[0].beside(host, int(port)))
        if word == "MOVED":
            self._by_slot[slot] = node
            self.look_soon()
        return node if node.serves else None

    def _lost(self, where: tuple[str, int]) -> None:
        """A server that comes back may no longer be the primary: it is not used before a look."""
        gone = self._nodes.get(where)
        self._by_slot = [None if node is gone else node for node in self._by_slot]
        self.look_soon()

    # Looking.

    async def _watch(self) -> None:
        """Keeps the connections and the map of servers until cancelled."""
        failures = 0
        while True:
            self._wanted.clear()
            before = list(self._by_slot)
            await self._look()
            if before != self._by_slot:
                self.feed.moved()
            self._looked.wake("")
            failures = 0 if self._is_whole() else min(failures + 1, _DOUBLED)
            await self._pause(min(_PAUSE_S * 2**failures, _LONGEST_PAUSE_S))
            if not failures:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._wanted.wait()

    async def _pause(self, seconds: float) -> None:
        # Not all at the same moment: a server that comes back is not met by everyone at once.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds * (0.5 + self._jitter())):
                await asyncio.Event().wait()

    def _is_whole(self) -> bool:
        return all(node is not None and node.serves for node in set(self._by_slot))

    async def _look(self) -> None:
        nodes = list(self._nodes.values())
        await asyncio.gather(*(self._look_at(node) for node in nodes))
        serving = [node for node in nodes if node.serves and node.state is not None]
        self._is_cluster = any(node.state.is_cluster for node in serving if node.state)
        if self._is_cluster:
            await self._map_cluster(serving)
        elif serving:
            primary = _primary_of(serving)
            if primary is not None or self._by_slot[0] not in serving:
                self._by_slot = [primary] * SLOTS

    async def _look_at(self, node: Node) -> None:
        where = (node.address.host, node.address.port)
        try:
            await node.look()
            self._unfit.pop(where, None)
        except (OSError, ConnectionLost, TooMuchWaits):
            return  # it is looked at again; who waits for it is told in time
        except UnfitServer as unfit:
            node.close()
            if where not in self._unfit:
                _log.error("valkey_unfit", why=str(unfit))
            self._unfit[where] = str(unfit)

    async def _map_cluster(self, serving: Sequence[Node]) -> None:
        """The slots as the node knows them that has seen the latest election."""
        told = await asyncio.gather(*(self._epoch_of(node) for node in serving))
        epoch, teller = max(zip(told, serving, strict=True), key=lambda pair: pair[0])
        if epoch < 0:
            return
        answer = await self._quickly(teller, pack("CLUSTER", "SLOTS"))
        if not isinstance(answer, list):
            return
        by_slot: list[Node | None] = [None] * SLOTS
        for slots, host, port in primaries_of(answer):
            node = self._node(teller.address.beside(host, port))
            by_slot[slots.start : slots.stop] = [node] * len(slots)
        used = {node for node in by_slot if node is not None}
        await asyncio.gather(*(self._look_at(node) for node in used if not node.serves))
        self._by_slot = by_slot
        kept = {(address.host, address.port) for address in self._given}
        for where, node in list(self._nodes.items()):
            if node not in used and where not in kept:
                del self._nodes[where]
                node.close()

    async def _epoch_of(self, node: Node) -> int:
        """The cluster's epoch as this node knows it; -1 for one that is cut off from the others."""
        answer = await self._quickly(node, pack("CLUSTER", "INFO"))
        if not isinstance(answer, bytes) or b"cluster_state:ok" not in answer:
            return -1
        told = dict(line.split(":", 1) for line in answer.decode().splitlines() if ":" in line)
        return int(told.get("cluster_current_epoch", -1))

    async def _quickly(self, node: Node, packed: bytes) -> Any:
        """The answer, or None if there is none soon."""
        try:
            assert node.commands is not None
            deadline = asyncio.get_running_loop().time() + _LOOK_S / 2
            return await node.commands.send(packed, deadline)
        except (ConnectionLost, NoAnswer, TooMuchWaits):
            return None

    async def _until_known(self, slot: int, deadline: float) -> None:
        while self._by_slot[slot] is None and not self._unfit:
            await self.looked(deadline)

    def _node(self, address: Address) -> Node:
        where = (address.host, address.port)
        if where not in self._nodes:
            self._nodes[where] = Node(
                address,
                patience_s=self._patience_s,
                on_lost=lambda _: self._lost(where),
                on_push=self.feed.pushed,
                on_feed_lost=self.feed.lost,
            )
        return self._nodes[where]


def _primary_of(nodes: Sequence[Node]) -> Node | None:
    """The primary; of several, the one that replicas follow: a primary that came back after its
    replica was promoted has none."""
    primaries = [node for node in nodes if node.state is not None and node.state.is_primary]
    return max(primaries, key=_standing, default=None)


def _standing(node: Node) -> tuple[int, int]:
    return (node.state.replicas, node.state.offset) if node.state is not None else (0, 0)


def _fine(answer: Any) -> Any:
    """The answer, unless it is an error."""
    if isinstance(answer, hiredis.ReplyError):
        if str(answer).startswith("OOM"):
            raise StoreFull("Valkey is full")
        raise StoreUnavailable(f"Valkey refuses: {answer}")
    return answer


def _ignore(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()


_ASKING: Final = pack("ASKING")
