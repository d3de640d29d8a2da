"""`python -m tests.chaos.explain FOLDER/run WORD`: all that a run left about one reply, in order.

WORD is a reply's id, a key, or the end of either. For the person who has to understand a violation.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from tests.chaos.evidence import Evidence

# Deeds so long before a turn may still be felt in it.
_BEFORE_S = 3.0


def story(evidence: Evidence, word: str) -> list[str]:
    """One line for each thing that happened to the replies whose id or key ends with `word`."""
    lines: list[tuple[float, str]] = []
    for turn in evidence.turns.values():
        if not (turn.reply.endswith(word) or turn.key.endswith(word)):
            continue
        begun_at = turn.created_at
        lines.append((begun_at, f"created {turn}"))
        ended_at = turn.finished_at or evidence.quiet_at
        lines.append((ended_at, f"finished {turn.status} {turn.finish} {turn.failure}"))
        for write in evidence.writes_of.get(turn.reply, ()):
            what = f"{write.op} epoch {write.epoch} attempt {write.attempt}"
            took = f"{write.verdict} ({write.t1 - write.t0:.3f} s)"
            numbers = f"{write.first}-{write.last}"
            lines.append((write.t1, f"{write.proc} {what} {numbers}: {took}"))
        for g in evidence.generations_of.get(turn.reply, ()):
            lines.append((g.began_at, f"{g.engine} begins {g.request} after {g.said_before}"))
            end = g.ended_at or ended_at
            lines.append((end, f"{g.engine} ends {g.request}: {g.tokens} tokens, {g.reason}"))
        for call in evidence.calls_of_turn.get((turn.owner, turn.key), ()):
            lines.append(
                (call.t0, f"{call.proc} {call.op} {call.view} after {call.attempt}/{call.after}")
            )
            lines += [
                (e.at, f"{call.proc} gives {call.view} {e.id} {e.kind} {e.data[:60]}")
                for e in call.events
            ]
            lines.append((call.t1, f"{call.proc} {call.op} {call.http} {call.code} {call.end}"))
        for i in evidence.incidents:
            if i.t1 >= begun_at - _BEFORE_S and i.t0 <= ended_at + _BEFORE_S:
                lines.append((i.t0, f"DEED {i.fault} {i.kind} {i.victim} for {i.t1 - i.t0:.2f} s"))
    first = min((at for at, _ in lines), default=0.0)
    return [f"{at - first:8.3f} {text}" for at, text in sorted(lines)]


def main() -> None:
    """The command."""
    folder, word = sys.argv[1:]
    evidence: Evidence = pickle.loads((Path(folder) / "evidence").read_bytes())
    print("\n".join(story(evidence, word)) or "nothing is known of that")


if __name__ == "__main__":
    main()
