"""Tells a registry every quarter of a second how this replica is, until it goes.

It must never end the engine: a registry that is away is tried again.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from tertulia.core.fleet import ReplicaReport
from tertulia.ports import Registry, StoreUnavailable

log = logging.getLogger("tertulia.replica")

OpenRegistry = Callable[[], AbstractAsyncContextManager[Registry]]

# Readers take a report of up to 300 ms for the present.
REPORT_S = 0.25
AGAIN_S = 1.0
LEAVE_S = 1.0  # a registry that is away forgets us by itself


async def keep_reporting(open_registry: OpenRegistry, report: Callable[[], ReplicaReport]) -> None:
    """Reports until cancelled, and then says that it leaves."""
    while True:
        try:
            async with open_registry() as registry:
                await _report_to(registry, report)
        except StoreUnavailable as error:
            log.warning("the registry is away: %s", error)
            await asyncio.sleep(AGAIN_S)


async def _report_to(registry: Registry, report: Callable[[], ReplicaReport]) -> None:
    try:
        while True:
            await registry.report(report())
            await asyncio.sleep(REPORT_S)
    except asyncio.CancelledError:
        last = report()
        try:
            async with asyncio.timeout(LEAVE_S):
                await registry.leave(last.name, last.incarnation)
        except (StoreUnavailable, TimeoutError):
            log.warning("the registry could not be told that this replica leaves")
        raise
