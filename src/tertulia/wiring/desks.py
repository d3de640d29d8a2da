"""Puts the desks of the roles together: which back end stands behind which port."""

from __future__ import annotations

from collections.abc import Mapping

from tertulia.backends.checks import RulesChecks
from tertulia.backends.clock import SystemClock, SystemIds
from tertulia.backends.grader import FeatureGrader
from tertulia.backends.memory.leases import MemoryLeases
from tertulia.backends.replicas import HttpReplicas
from tertulia.backends.replicas.fleet import FleetSource
from tertulia.backends.splitting import split_sentences
from tertulia.config import Settings
from tertulia.core.batches import BatchRules
from tertulia.core.canned import ready_replies
from tertulia.core.deletions import DAY_S
from tertulia.core.money import Prices
from tertulia.core.plans import Plan, Plans
from tertulia.core.quota import MILLI
from tertulia.core.types import Budget, Lane
from tertulia.flagging import FlagFigures, Flags
from tertulia.gateway.counters import Counters
from tertulia.gateway.desk import Desk, GatewayRules
from tertulia.gateway.figures import Figures
from tertulia.gateway.line import LineWatch
from tertulia.gateway.pulse import Pulse
from tertulia.gateway.refusals import Refusals
from tertulia.gateway.streams import OpenStreams
from tertulia.lookout import LadderFigures, Lookout
from tertulia.plan_tables import PlanTable
from tertulia.wiring.models import Vocabularies, fixed_fleet, replica_key
from tertulia.wiring.planning import ProcessPlanning
from tertulia.wiring.scaling import ScaleFigures
from tertulia.wiring.sign_ons import sign_ons
from tertulia.wiring.stores import Stores
from tertulia.worker.desk import WorkerDesk, WorkerRules
from tertulia.worker.figures import WorkerFigures


class Parts:
    """What both roles of a process share: its stores, its clock, and its view of the replicas."""

    def __init__(self, settings: Settings, clock: SystemClock, stores: Stores) -> None:
        self.settings = settings
        self.clock = clock
        self.stores = stores
        self.vocabularies = Vocabularies(settings)
        self.new_id = SystemIds(clock)
        self.lookout = Lookout(stores.rungs, clock, name=self.new_id("p"))
        self.plans = plans_of(settings.plans)
        self.checks = RulesChecks()
        self.flags = Flags()
        self.replicas = HttpReplicas(
            FleetSource(fixed_fleet(settings), settings.fleet_file),
            vocabulary=self.vocabularies.of,
            clock=clock,
            homes=stores.homes,
            registry=stores.registry,
            registry_key=replica_key(settings),
            holds=stores.holds,
            pace_s=settings.worker.pace_ms / 1000,
        )


def gateway_desk(parts: Parts) -> Desk:
    """The desk of a gateway."""
    settings, stores = parts.settings, parts.stores
    figures = Figures()
    figures.add(LadderFigures(parts.lookout))
    line = LineWatch(stores.line, stores.promises, parts.replicas, parts.clock)
    figures.add(ScaleFigures(parts.replicas.supplies, lambda: _waiting(line), parts.clock))
    figures.add(FlagFigures(parts.flags))
    counters = Counters(stores.leases, MemoryLeases(parts.clock), parts.clock)
    streams = OpenStreams(counters)
    return Desk(
        turns=stores.turns,
        loose=stores.loose,
        presence=stores.presence,
        log=stores.log,
        bell=stores.bell,
        conversations=stores.conversations,
        messages=stores.messages,
        branches=stores.branches,
        shares=stores.shares,
        accounts=stores.accounts,
        identities=stores.identities,
        sessions=stores.sessions,
        api_keys=stores.api_keys,
        files=stores.files,
        batches=stores.batches,
        batch_work=stores.batch_work,
        deletions=stores.deletions,
        erasure=stores.erasure,
        transcripts=stores.transcripts,
        imports=stores.imports,
        import_work=stores.import_work,
        prompts=stores.prompts,
        instructions=stores.instructions,
        replicas=parts.replicas,
        checks=parts.checks,
        grader=FeatureGrader(),
        vocabulary=parts.vocabularies.of,
        clock=parts.clock,
        new_id=parts.new_id,
        line=line,
        lookout=parts.lookout,
        refusals=Refusals(stores.accounts, parts.clock),
        counters=counters,
        streams=streams,
        holds=stores.holds,
        planning=ProcessPlanning(),
        pulse=Pulse(parts.replicas, line, parts.lookout, figures, parts.clock),
        flags=parts.flags,
        plans=parts.plans,
        rules=GatewayRules(
            body_bytes=settings.server.body_bytes,
            easy_tokens=settings.choice.easy_tokens,
            small_below=settings.small_below,
            registration_open=settings.server.registration == "open",
            shares_open=settings.server.shares == "open",
            public_url=settings.server.public_url or "",
            secure_cookies=settings.server.secure_cookies,
            trusted_proxies=settings.server.trusted_proxies,
            hosts=settings.server.known_hosts,
            prices=_prices(settings),
            batches=_batches(settings),
        ),
        figures=figures,
        canned=ready_replies((table.questions, table.reply) for table in settings.canned),
        sign_ons=sign_ons(settings, parts.clock),
    )


def worker_desk(parts: Parts) -> WorkerDesk:
    """The desk of a worker."""
    settings, stores = parts.settings, parts.stores
    figures, lookout = WorkerFigures(), parts.lookout
    figures.add(LadderFigures(lookout))
    figures.add(ScaleFigures(parts.replicas.supplies, lambda: lookout.waiting or 0, parts.clock))
    figures.add(FlagFigures(parts.flags))
    return WorkerDesk(
        turns=stores.turns,
        loose=stores.loose,
        queue=stores.queue,
        line=stores.line,
        log=stores.log,
        bell=stores.bell,
        conversations=stores.conversations,
        messages=stores.messages,
        accounts=stores.accounts,
        files=stores.files,
        imports=stores.imports,
        batches=stores.batches,
        deletions=stores.deletions,
        erasure=stores.erasure,
        prompts=stores.prompts,
        instructions=stores.instructions,
        tasks=stores.tasks,
        summaries=stores.summaries,
        replicas=parts.replicas,
        checks=parts.checks,
        vocabulary=parts.vocabularies.of,
        split=split_sentences,
        clock=parts.clock,
        lookout=parts.lookout,
        plans=parts.plans,
        rules=WorkerRules(
            lease_s=settings.worker.lease_s,
            replies=settings.worker.replies,
            sentence_tokens=settings.worker.sentence_tokens,
            log_kept_s=settings.worker.log_kept_s,
            deletions_kept_s=settings.deletion.audit_days * DAY_S,
            small_below=settings.small_below,
        ),
        figures=figures,
        flags=parts.flags,
    )


def plans_of(tables: Mapping[str, PlanTable]) -> Plans:
    """The plans of the configuration."""
    return Plans((name, _plan(name, table)) for name, table in tables.items())


def _prices(settings: Settings) -> Prices | None:
    table = settings.costs
    if table.accelerator_per_hour is None:
        return None
    return Prices(
        accelerator_per_hour=table.accelerator_per_hour,
        accelerators=table.accelerators,
        team_per_year=table.team_per_year,
        target=table.target_per_million,
    )


def _batches(settings: Settings) -> BatchRules:
    table = settings.batches
    return BatchRules(
        file_bytes=table.file_bytes,
        line_bytes=table.line_bytes,
        lines=table.lines,
        user_bytes=table.user_bytes,
        user_batches=table.user_batches,
        open_lines=table.open_lines,
        kept_s=table.kept_days * 86_400.0,
    )


def _plan(name: str, table: PlanTable) -> Plan:
    return Plan(
        name=name,
        lane=Lane[table.lane.upper()],
        window_tokens=table.window_tokens,
        answer_tokens=table.answer_tokens,
        budgets=tuple(
            Budget(
                name=budget.name,
                unit=budget.unit,
                limit=budget.limit * MILLI,
                refill_ms=budget.refill_s * 1000,
            )
            for budget in table.budgets
        ),
        replies_running=table.replies_running,
        open_streams=table.open_streams,
        wait_s=table.wait_s,
        models=table.models,
        ladder=table.ladder,
        abandon_s=table.abandon_s,
        retention_days=table.retention_days,
    )


def _waiting(line: LineWatch) -> int:
    """The chat turns that wait, as this gateway last saw them."""
    return sum(line.lane(lane).queued for lane in Lane if lane.is_chat)
