"""What operating a fleet needs from the world: a look at its replicas, and which are set aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tertulia.core.fleet import ReplicaSight


class Holds(Protocol):
    """The replicas that administrators have set aside, for every gateway and worker. A hint for
    placement: all of it may be lost, and then nothing is set aside.

    Promises
    * `names` gives those that were held and not let go since, by name.
    * `hold` and `let_go` take effect for whoever asks afterwards; doing either again changes
      nothing. At most a thousand are held: `hold` is false, and changes nothing, beyond that.
    """

    async def names(self) -> frozenset[str]: ...
    async def hold(self, name: str) -> bool: ...
    async def let_go(self, name: str) -> None: ...


class Fleet(Protocol):
    """The replicas as this process sees them.

    Promises
    * `sights` gives each that is known here, by name, and never waits.
    * One that is held gets nothing new within two seconds; what runs there goes on to its end.
    """

    def sights(self) -> Sequence[ReplicaSight]: ...
