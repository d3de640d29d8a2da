"""Everything a reply can fail with, in the words that people are told."""

from __future__ import annotations

from tertulia.core.types import Failure

NO_REPLICA = Failure(
    "replica_unavailable", "No model can answer at the moment. Please try again.", True, 5
)
REPLICA_REFUSED = Failure("replica_refused", "The model can't answer this. Please rephrase.", False)
REPLICA_LOST = Failure(
    "replica_lost", "The answer broke off and could not be continued. Please try again.", True
)
INTERRUPTED = Failure("interrupted", "The answer was interrupted and could not be continued.", True)
WAITED_TOO_LONG = Failure("busy", "There was no room for this message. Please try again.", True, 10)
INTERNAL = Failure("internal", "Something went wrong on our side. Please try again.", True)
