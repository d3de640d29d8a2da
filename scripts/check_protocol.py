"""Check the turn protocol's spin model, and that each single fault planted in it is caught.

It must never pass because a fault missed its place: every replacement has to match exactly once.
Needs `spin` and `gcc`; takes about a minute on one core. Exit code 1 means a deviation.
"""

import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

MODEL = Path(__file__).parent.parent / "docs" / "explanation" / "turn.pml"

RUN_LIMIT_S = 240  # the whole model takes about 10 s; more means that it grew out of hand
AT_ONCE = 2


@dataclass(frozen=True)
class Edit:
    """One textual change of the model. `count` guards against a fault that misses its place."""

    old: str
    new: str
    count: int = 1


@dataclass(frozen=True)
class Variant:
    """The model with some edits, and whether the checker must find an error in it."""

    name: str
    must_be_caught: bool
    why: str
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What the checker said of one variant: how many states it saw, what it stopped at."""

    variant: Variant
    caught: bool
    states: int
    violated: str
    wall_s: float

    @property
    def as_expected(self) -> bool:
        return self.caught == self.variant.must_be_caught


# The append script's three conditions, as the model writes them.
APPEND_CHECKS = "fence == my_epoch && log_length == mine_length && log_attempt == my_attempt ->"
NO_SEQUENCE_CHECK = Edit(APPEND_CHECKS, "fence == my_epoch && log_attempt == my_attempt ->")
# How a live owner writes a lost log again: it asks the store first, then writes everything.
CONFIRMED = "             :: epoch == my_epoch\n             :: else -> goto superseded"
RESEEDS = "                log_length = mine_length;\n"
FENCE_CHECK = ":: my_epoch < fence -> goto superseded\n"
NO_LOSS = Edit("run Loss(); ", "")
CALL = "     fence_and_read();\n"

# Reading first and raising the fence in a second step: anything may happen in between.
READ_THEN_FENCE = """
inline read_then_fence() {
  atomic {
    if :: my_epoch < fence -> goto superseded :: else fi;
    if :: fence != 0 -> my_attempt = log_attempt :: else fi;
    mine_length = log_length;
    i = 0;
    do :: i < mine_length -> i++; mine[i] = log[i] :: else -> break od
  };
  atomic {
    if :: my_epoch < fence -> goto superseded :: else fi;
    missing = (fence == 0);
    if
    :: missing && my_epoch > 1 ->
       my_attempt = my_attempt + 1; log_attempt = my_attempt; log_length = 0; mine_length = 0
    :: missing && my_epoch <= 1 -> log_attempt = my_attempt; mine_length = 0
    :: else
    fi;
    fence = my_epoch
  }
}

"""
DEFINE_READ_THEN_FENCE = Edit(
    "/* A worker: claim,", READ_THEN_FENCE.lstrip("\n") + "/* A worker: claim,"
)
WORKER_READS_FIRST = Edit(
    CALL + "     atomic {\n       if\n       :: epoch == my_epoch -> attempt",
    CALL.replace("fence_and_read", "read_then_fence")
    + "     atomic {\n       if\n       :: epoch == my_epoch -> attempt",
)
STOP_READS_FIRST = Edit(
    CALL + "     atomic {\n       if\n       :: epoch == my_epoch && status == OPEN -> attempt",
    CALL.replace("fence_and_read", "read_then_fence")
    + "     atomic {\n       if\n       :: epoch == my_epoch && status == OPEN -> attempt",
)

VARIANTS = (
    Variant("the protocol", False, "every step as specified"),
    Variant(
        "no epoch fence",
        True,
        "the sequence check keeps the text in order, but a token comes after the end",
        (
            Edit(FENCE_CHECK, ":: false -> goto superseded\n"),
            Edit(APPEND_CHECKS, APPEND_CHECKS.replace("fence == my_epoch", "fence != 0")),
        ),
    ),
    Variant(
        "no checks on append",
        True,
        "a token made from text that is not there",
        (Edit(APPEND_CHECKS, "fence != 0 ->"),),
    ),
    Variant(
        "send before append",
        True,
        "a client sees a token that never existed",
        (
            Edit(
                "atomic {                               /* step 4",
                "atomic { if\n"
                "          :: seen_attempt == my_attempt && seen_length == mine_length ->\n"
                "             seen_length++; seen[seen_length] = my_epoch\n"
                "          :: else\n"
                "          fi };\n"
                "        atomic {                       /* step 4",
            ),
        ),
    ),
    Variant(
        "settle unconditionally",
        True,
        "a turn is settled twice",
        (
            Edit(
                ":: epoch == my_epoch && status == OPEN -> finish(COMPLETED)",
                ":: finish(COMPLETED)",
            ),
        ),
    ),
    Variant(
        "stop without raising the fence",
        True,
        "a late token follows the stored text",
        (
            Edit(
                STOP_READS_FIRST.old,
                STOP_READS_FIRST.old.replace(
                    "fence_and_read();\n",
                    "atomic {\n"
                    "       if :: fence != 0 -> my_attempt = log_attempt :: else fi;\n"
                    "       mine_length = log_length; i = 0;\n"
                    "       do :: i < mine_length -> i++; mine[i] = log[i] :: else -> break od\n"
                    "     };\n",
                ),
            ),
        ),
    ),
    Variant(
        "ignore a missing buffer on takeover",
        True,
        "the client's text is not the stored text",
        (Edit(":: missing && (my_epoch > 1 || fence != 0) ->  ", ":: missing && false ->  "),),
    ),
    Variant(
        "believe that a failover lost nothing",
        True,
        "the heir goes on from a log without the end that a client saw",
        (Edit("#define IN_DOUBT (log_origin != origin)", "#define IN_DOUBT false"),),
    ),
    Variant(
        "append to a log in doubt",
        True,
        "the news of a later fence was lost, and a superseded owner writes beside its heir",
        (Edit("!IN_DOUBT &&\n", "true &&\n"),),
    ),
    Variant(
        "write a log in doubt again unasked",
        True,
        "a superseded owner takes the log from its heir",
        (Edit(CONFIRMED, CONFIRMED.replace(":: else -> goto superseded", ":: else")),),
    ),
    Variant(
        "owner does not re-seed after a loss",
        True,
        "the log lacks the text before the loss",
        (Edit(RESEEDS, "                mine_length = 0; log_length = 0;\n"),),
    ),
    Variant(
        "a worker reads, then fences",
        True,
        "a re-seed after a loss passes no sequence check, so what was missed is replaced",
        (DEFINE_READ_THEN_FENCE, WORKER_READS_FIRST),
    ),
    Variant(
        "the same where no buffer is lost",
        False,
        "the sequence check refuses what it missed",
        (DEFINE_READ_THEN_FENCE, WORKER_READS_FIRST, NO_LOSS),
    ),
    Variant(
        "no sequence check on append",
        False,
        "reading under the fence misses nothing",
        (NO_SEQUENCE_CHECK,),
    ),
    Variant(
        "both of the last two, nothing lost",
        True,
        "each covered for the other",
        (DEFINE_READ_THEN_FENCE, WORKER_READS_FIRST, NO_SEQUENCE_CHECK, NO_LOSS),
    ),
    Variant(
        "a stop reads, then fences",
        True,
        "it appends nothing, so no later check covers for it",
        (DEFINE_READ_THEN_FENCE, STOP_READS_FIRST),
    ),
)


def main() -> int:
    model = MODEL.read_text()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(lambda variant: check(model, variant), VARIANTS))

    print(f"{'variant':38}{'result':10}{'states':>10}{'s':>7}  why")
    for outcome in outcomes:
        result = "caught" if outcome.caught else "safe"
        mark = "" if outcome.as_expected else "  <-- NOT AS EXPECTED"
        print(
            f"{outcome.variant.name:38}{result:10}{outcome.states:>10,}{outcome.wall_s:>7.1f}"
            f"  {outcome.variant.why}{mark}"
        )
        if outcome.caught:
            print(f"{'':38}{outcome.violated}")
    deviations = [outcome for outcome in outcomes if not outcome.as_expected]
    print(f"{len(outcomes)} variants, {len(deviations)} not as expected")
    return 1 if deviations else 0


def check(model: str, variant: Variant) -> Outcome:
    started = perf_counter()
    with tempfile.TemporaryDirectory(prefix="turn-model-") as folder:
        Path(folder, "turn.pml").write_text(mutate(model, variant))
        run(["spin", "-a", "turn.pml"], folder)
        # Collapsed states take a third of the memory: 400 MB for the whole protocol.
        flags = ["-O1", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048"]
        run(["gcc", *flags, "-o", "pan", "pan.c"], folder)
        # -E: a worker left without work is no deadlock. The depth and the hash table are bounds.
        report = run(["./pan", "-E", "-m10000", "-w23"], folder)
    return read_report(report, variant, perf_counter() - started)


def mutate(model: str, variant: Variant) -> str:
    for edit in variant.edits:
        found = model.count(edit.old)
        if found != edit.count:
            raise SystemExit(
                f"{variant.name}: expected {edit.count} place(s), found {found} of: {edit.old}"
            )
        model = model.replace(edit.old, edit.new)
    return model


def run(command: list[str], folder: str) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def read_report(report: str, variant: Variant, wall_s: float) -> Outcome:
    """Read pan's report; a search that was cut short proves nothing and is refused."""
    errors = re.search(r"errors: (\d+)", report)
    states = re.search(r"(\d+) states, stored", report)
    if errors is None or states is None or "too small" in report or "out of memory" in report:
        raise SystemExit(f"{variant.name}: the search was not complete:\n{report}")
    violated = re.search(r"pan:\d+: (.*?) \(at depth", report)
    return Outcome(
        variant=variant,
        caught=int(errors[1]) > 0,
        states=int(states[1]),
        violated=violated[1] if violated else "",
        wall_s=wall_s,
    )


if __name__ == "__main__":
    sys.exit(main())
