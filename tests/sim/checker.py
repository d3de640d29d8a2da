"""The checker: after everything came to rest, do store, log, engines and histories agree?

Its names are those of the fault plan (C1, C2 ...); it reads private state and changes nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tertulia.core.quota import accepted, cost, drifts, rebuilt
from tertulia.core.turn import refusal_entry, terminal_entry
from tertulia.core.types import Message, Status, Turn
from tertulia.gateway.admit import MessageAsk
from tests.sim.engines import Engines, Generation
from tests.sim.fleet import Fleet
from tests.sim.histories import Asked, History, View
from tests.sim.language import FakeVocabulary, undisturbed
from tests.sim.nemesis import Nemesis
from tests.sim.witness import Finish, Witness

# A holder that lost its lease stops within a third of it, its abort within a second.
_OVERLAP_S: Final = 2.0 + 1.5


@dataclass(slots=True)
class Checker:
    """All evidence of one run. `check` reports each contradiction once."""

    fleet: Fleet
    history: History
    witness: Witness
    nemesis: Nemesis
    # Of the ended runs: tokens that are in their engines' logs.
    accepted_tokens: int = 0

    def check(self) -> None:
        for asked in self.history.asked.values():
            if not asked.deleted:
                self._check_asked(asked)
        for turn in self._turns():
            self._check_turn(turn)
        for view in self.history.views:
            self._check_view(view)
        self._check_stops()
        self._check_ledger()
        self._check_overlaps()
        self._check_rest()

    def report(self, check: str, text: str) -> None:
        self.history.report(check, text)

    def _turns(self) -> list[Turn]:
        return list(self.fleet.shared.store.turns.values())

    def _check_asked(self, asked: Asked) -> None:
        """C1 and C2: one key, one reply, one message, nothing acknowledged lost."""
        store = self.fleet.shared.store
        stored = [t for t in self._turns() if (t.owner, t.key) == (asked.owner, asked.key)]
        if len(asked.reply_ids) > 1 or len(stored) > 1:
            self.report("C2", f"{asked.key} has {len(stored)} turns, answers {asked.reply_ids}")
        for reply_id in asked.reply_ids:
            turn = store.turns.get(reply_id)
            if turn is None:
                self.report("C1", f"acknowledged {reply_id} is lost")
                continue
            if asked.is_stateless:
                continue
            message = store.messages.get((asked.owner, turn.user_message_id or ""))
            if message is None:
                self.report("C1", f"the message of {reply_id} is lost")
            elif isinstance(asked.ask, MessageAsk) and message.content != asked.ask.content:
                self.report("C1", f"the message of {reply_id} changed")

    def _check_turn(self, turn: Turn) -> None:
        """C8, C12 and I10 for one stored turn, against what its engines were asked and said."""
        if not turn.status.is_final:
            self.report("C12", f"{turn.reply_id} is still {turn.status}, epoch {turn.epoch}")
            return
        message = self.fleet.shared.store.messages.get((turn.owner, turn.reply_id))
        if message is not None:
            self._check_message(turn, message)
        for word in self.witness.climate.flagged:
            if word in turn.text:
                self.report("I10", f"{turn.reply_id}: {word!r} was stored")
        if turn.stop_reason is not None and turn.status is Status.COMPLETED:
            self.report("C15", f"{turn.reply_id} completed though it was stopped")
        self._check_text(turn)
        self._check_charge(turn)

    def _check_message(self, turn: Turn, message: Message) -> None:
        """The reply in its conversation, with the tokens that the next prompt will repeat."""
        ids = message.ids or ()
        if message.content != turn.text or message.status is not turn.status:
            self.report("C6", f"{turn.reply_id}: turn and message differ")
        spelled = FakeVocabulary().decode(ids)
        # A stop string may begin within a token, which is then said in part.
        if spelled != turn.text and not (turn.sampling.stop and spelled.startswith(turn.text)):
            self.report("C8", f"{turn.reply_id}: its tokens do not spell its text")
        if turn.usage.output != len(ids):
            self.report("C8", f"{turn.reply_id}: {turn.usage.output} charged, {len(ids)} said")
        generations = self._generations(turn)
        if generations:
            first = generations[0]
            _, whole = undisturbed(first.question, first.said_before + first.max_tokens)
            if ids != whole[: len(ids)]:
                self.report("C8", f"{turn.reply_id}: its tokens are not the engine's")

    def _check_text(self, turn: Turn) -> None:
        generations = self._generations(turn)
        if not generations:
            if turn.text:
                self.report("I4", f"{turn.reply_id} has a text that nobody generated")
            return
        first = generations[0]
        for other in generations:
            if other.question != first.question:
                self.report("I3", f"{turn.reply_id}: two prompts for one turn")
                return
            if other.said_before + other.max_tokens != first.said_before + first.max_tokens:
                self.report("C8", f"{turn.reply_id}: a continuation may say more or less")
        text, _ = undisturbed(first.question, first.said_before + first.max_tokens)
        for stop in turn.sampling.stop:
            text = text.partition(stop)[0]
        whole = turn.status is Status.COMPLETED
        if (whole and turn.text != text) or not text.startswith(turn.text):
            self.report("C5", f"{turn.reply_id} {turn.status}: {turn.text!r} is not {text!r}")

    def _check_charge(self, turn: Turn) -> None:
        generations = self._generations(turn)
        if generations and turn.usage.input not in (0, len(generations[0].question)):
            self.report("C8", f"{turn.reply_id}: {turn.usage.input} tokens of prompt charged")
        if turn.text and turn.usage.input == 0:
            self.report("C8", f"{turn.reply_id}: answered, but its prompt was free")
        if turn.charged != cost("units", turn.usage):
            self.report("C7", f"{turn.reply_id}: {turn.charged} charged for {turn.usage}")
        if accepted(turn.usage, turn.worst_case) != turn.usage:
            self.report("C7", f"{turn.reply_id}: {turn.usage}, reserved {turn.worst_case}")

    def _generations(self, turn: Turn) -> list[Generation]:
        """Those of the turn's last run, in order."""
        begun_at = self.witness.admitted[turn.reply_id][-1].epoch
        return [
            g
            for g in self.fleet.engines.generations
            if g.reply_id == turn.reply_id and g.epoch > begun_at
        ]

    def _check_view(self, view: View) -> None:
        """C5 and C6 for one client: what it holds is what is stored."""
        turn = self.fleet.shared.store.turns.get(view.reply_id)
        if turn is None or not turn.status.is_final:
            return
        for word in self.witness.climate.flagged:
            if word in view.text:
                self.report("I10", f"{view.name} saw {word!r} of {view.reply_id}")
        losses = self.nemesis.losses[view.reply_id]
        reruns = len(self.witness.admitted[view.reply_id]) - 1
        if view.resets > losses + reruns and not view.is_plain:
            self.report(
                "C5", f"{view.name}: {view.resets} resets of {view.reply_id}, {losses} losses"
            )
        if reruns and (view.end is None or view.end.kind == "fail"):
            return  # it saw the end of an earlier run
        if view.end is None:
            if view.attempt == turn.attempt and not turn.text.startswith(view.text):
                self.report("C5", f"{view.name}: {view.text!r} of {view.reply_id}: {turn.text!r}")
            return
        if view.text != turn.text:
            self.report("C5", f"{view.name}: {view.text!r} of {view.reply_id}: {turn.text!r}")
        refusal = refusal_entry(1, turn).data if turn.refusal is not None else None
        if view.refusal != refusal:
            self.report("C6", f"{view.name}: {view.refusal!r} of {view.reply_id}, not {refusal!r}")
        end = terminal_entry(view.last_id, turn)
        if (view.end.kind, view.end.data) != (end.kind, end.data):
            self.report("C6", f"{view.name}: {view.end} of {view.reply_id}, stored {end}")
        if view.attempt == turn.attempt and view.last_id != turn.last_event_id:
            self.report("C5", f"{view.name}: {view.last_id} of {turn.last_event_id} events")

    def _check_stops(self) -> None:
        """C15: what a stop answered is the end."""
        heads: dict[tuple[str, int], int] = defaultdict(int)
        for reply_id, attempt, event_id in self.history.seen:
            heads[reply_id, attempt] = max(heads[reply_id, attempt], event_id)
        for stop in self.history.stops:
            told = stop.turn
            stored = self.fleet.shared.store.turns.get(told.reply_id)
            if stored is None or told.status is Status.FAILED:
                continue
            if (stored.text, stored.status) != (told.text, told.status):
                self.report("C15", f"{told.reply_id} changed after its stop was answered")
            if heads[told.reply_id, told.attempt] > told.last_event_id:
                self.report("C15", f"{told.reply_id}: events after its stop was answered")

    def _check_ledger(self) -> None:
        """C7: each run was settled once, budgets balance to the token, nothing stays reserved."""
        store = self.fleet.shared.store
        settled = Counter(
            (s.reply_id, s.epoch, s.settlement.usage) for s in store.settlements.values()
        )
        finished = Counter((f.reply_id, f.epoch, f.outcome.usage) for f in self.witness.finishes)
        for key, count in finished.items():
            if settled[key] != count:
                self.report("C7", f"finish {key} was settled {settled[key]} times")
        for key in settled.keys() - finished.keys():
            if key[0] in store.turns:
                self.report("C7", f"settled without a finish: {key}")
        runs = Counter(reply_id for reply_id, _, _ in settled.elements())
        for reply_id, turns in self.witness.admitted.items():
            if reply_id not in store.turns or turns[0].refusal is not None:
                continue
            if runs[reply_id] != len(turns):
                self.report("C7", f"{reply_id}: {len(turns)} runs, {runs[reply_id]} settled")
        for user in {s.owner for s in store.settlements.values()}:
            self._check_balances(user)
        for finish in self.witness.finishes:
            self._check_accepted(finish)

    def _check_balances(self, user: str) -> None:
        """What is used follows from the settlements, and nothing is held any more."""
        store = self.fleet.shared.store
        spent = store.spent(user, self.fleet.clock.now())
        if spent.holdings:
            self.report("C7", f"{user} still holds {spent.holdings}")
        made = sorted(
            (s.settlement for s in store.settlements.values() if s.owner == user),
            key=lambda settlement: settlement.at_ms,
        )
        if any(later.at_ms <= earlier.at_ms for earlier, later in pairwise(made)):
            self.report("C7", f"{user} was settled twice at one moment")
        drift = drifts(spent.balances, rebuilt(made))
        if drift:
            self.report("C7", f"{user}: {drift}")
        for budget in self.fleet.climate.plans[user.partition("-")[0]].budgets:
            charged = sum(cost(budget.unit, settlement.usage) for settlement in made)
            span_ms = made[-1].at_ms - made[0].at_ms
            # At most this came back, and less than one part was rounded away at each settlement.
            refilled = budget.limit * span_ms // budget.refill_ms
            kept = spent.balances[budget.name].used if budget.name in spent.balances else 0
            if not charged - refilled <= kept <= min(charged, budget.limit):
                self.report("C7", f"{user}: {kept} of {budget.name} used, {charged} charged")

    def _check_accepted(self, finish: Finish) -> None:
        """The settled tokens of a run are what its engines said, and the log had taken, of it."""
        said = finish.outcome.ids
        if finish.outcome.usage.output != len(said):
            self.report("C8", f"{finish.reply_id}: {finish.outcome.usage}, {len(said)} accepted")
        runs = sorted(turn.epoch for turn in self.witness.admitted[finish.reply_id])
        begun_at = max(epoch for epoch in runs if epoch <= finish.epoch)
        generations = [
            g
            for g in self.fleet.engines.generations
            if g.reply_id == finish.reply_id and begun_at < g.epoch <= finish.epoch
        ]
        if not generations:
            if said:
                self.report("I4", f"{finish.reply_id}: {len(said)} tokens that nobody generated")
            return
        first = generations[0]
        _, whole = undisturbed(first.question, first.said_before + first.max_tokens)
        if said != whole[: len(said)]:
            self.report("C8", f"{finish.reply_id} was charged for tokens that are not its engine's")
        if finish.outcome.usage.input not in (0, len(first.question)):
            self.report("C8", f"{finish.reply_id}: {finish.outcome.usage.input} of prompt settled")
        self.accepted_tokens += len(said)

    def _check_overlaps(self) -> None:
        """C9: two generations of one turn run together no longer than a lease takes to run out."""
        by_reply: dict[str, list[Generation]] = defaultdict(list)
        for generation in self.fleet.engines.generations:
            by_reply[generation.reply_id].append(generation)
        for reply_id, generations in by_reply.items():
            for earlier, later in pairwise(generations):
                # The later one may be the loser: sent before it heard, it ends at its first word.
                ends = [one.ended_at for one in (earlier, later) if one.ended_at is not None]
                if ends and min(ends) - later.started_at > _OVERLAP_S:
                    self.report("C9", f"{reply_id}: {earlier.request_id} beside {later.request_id}")

    def _check_rest(self) -> None:
        """Nothing is left running anywhere."""
        engines: Engines = self.fleet.engines
        for replica in engines.replicas.values():
            if replica.running:
                self.report("C11", f"{replica.name} still runs {list(replica.running)}")
        for generation in engines.generations:
            if generation.ended_at is None:
                self.report("C11", f"{generation.request_id} has no end")
        for gateway in self.fleet.gateways:
            if len(gateway.desk.streams):
                self.report("C11", f"{gateway.name} counts {len(gateway.desk.streams)} streams")
        for place in (*self.fleet.gateways, *self.fleet.workers):
            if place.process is not None and place.process.running:
                self.report("C11", f"{place.name} still runs {place.process.running}")
