"""The first schema: what is a user's is partitioned by the user. Once released it stays.

Every key of such a table begins with its owner, so that the same schema can be spread over
machines by owner. Ids compare by their bytes (`COLLATE "C"`), whatever the database's language.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Vacuum, indexes and locks work on one partition at a time. More of them cost every statement
# that looks at all, as a claim does; a database that needs more is spread over machines by owner.
_PARTITIONS = 8

_BY_OWNER = (
    "doors",
    "instructions",
    "conversations",
    "messages",
    "summaries",
    "tasks",
    "turns",
    "open_turns",
    "tags",
    "settlements",
    "balances",
    "log_removals",
    "deleted_keys",
    "files",
    "file_parts",
    "batches",
    "batch_lines",
    "deletions",
    "imports",
)

_FUNCTIONS = (
    # Store time in seconds. Tests hand in a clock of theirs; nobody else does.
    """
    CREATE FUNCTION moment(given DOUBLE PRECISION) RETURNS DOUBLE PRECISION
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
      SELECT coalesce(given, CAST(extract(epoch FROM statement_timestamp()) AS DOUBLE PRECISION))
    $$
    """,
    # What is left of what was used of a budget of this size after some time of its refill: the
    # same whole numbers as `core.quota.used`. NUMERIC, for the product is beyond 64 bits.
    """
    CREATE FUNCTION left_of(used BIGINT, size BIGINT, refill_ms BIGINT, elapsed_ms BIGINT)
    RETURNS BIGINT
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
      SELECT CAST(greatest(
        0, used - div(CAST(size AS NUMERIC) * greatest(0, elapsed_ms), refill_ms)
      ) AS BIGINT)
    $$
    """,
    # What a usage costs each of these budgets; `charges` is what it costs in each unit, as JSON.
    """
    CREATE FUNCTION charges_of(budgets TEXT, charges TEXT)
    RETURNS TABLE (budget TEXT, size BIGINT, refill_ms BIGINT, charge BIGINT)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
      SELECT due.name, due.size, due.refill_ms, due.charge FROM (
        SELECT one->>0 AS name, CAST(one->>2 AS BIGINT) AS size,
          CAST(one->>3 AS BIGINT) AS refill_ms,
          CAST(CAST(charges AS JSONB)->>(one->>1) AS BIGINT) AS charge
        FROM jsonb_array_elements(CAST(budgets AS JSONB)) AS one
      ) AS due
      WHERE due.charge > 0
    $$
    """,
    # Both lists in order; what the first has already is not added again.
    """
    CREATE FUNCTION joined(kept TEXT[], added TEXT[]) RETURNS TEXT[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
      SELECT kept || ARRAY(
        SELECT word FROM unnest(added) WITH ORDINALITY AS new (word, place)
        WHERE word <> ALL (kept) ORDER BY place
      )
    $$
    """,
)

_TABLES = (
    # The directory: found by a name or a secret, before anybody knows whose it is.
    """
    CREATE TABLE users (
      id TEXT COLLATE "C" PRIMARY KEY,
      name TEXT NOT NULL,
      name_key TEXT COLLATE "C" NOT NULL UNIQUE,
      role TEXT NOT NULL,
      plan TEXT NOT NULL,
      password_hash TEXT,
      created_at DOUBLE PRECISION NOT NULL,
      disabled BOOLEAN NOT NULL DEFAULT FALSE,
      evaluation BOOLEAN NOT NULL DEFAULT FALSE
    )
    """,
    "CREATE INDEX users_evaluation ON users (id) WHERE evaluation",
    # Who signs in by a provider: known by issuer and subject, and by nothing else.
    """
    CREATE TABLE identities (
      issuer TEXT COLLATE "C" NOT NULL,
      subject TEXT COLLATE "C" NOT NULL,
      user_id TEXT COLLATE "C" NOT NULL,
      created_at DOUBLE PRECISION NOT NULL,
      PRIMARY KEY (issuer, subject)
    )
    """,
    "CREATE INDEX identities_user ON identities (user_id)",
    """
    CREATE TABLE sessions (
      token_hash TEXT COLLATE "C" PRIMARY KEY,
      user_id TEXT COLLATE "C" NOT NULL,
      created_at DOUBLE PRECISION NOT NULL,
      expires_at DOUBLE PRECISION NOT NULL
    )
    """,
    "CREATE INDEX sessions_user ON sessions (user_id)",
    "CREATE INDEX sessions_end ON sessions (expires_at)",
    """
    CREATE TABLE links (
      token_hash TEXT COLLATE "C" PRIMARY KEY,
      user_id TEXT COLLATE "C" NOT NULL,
      created_at DOUBLE PRECISION NOT NULL,
      expires_at DOUBLE PRECISION NOT NULL
    )
    """,
    """
    CREATE TABLE api_keys (
      owner TEXT COLLATE "C" NOT NULL,
      id TEXT COLLATE "C" NOT NULL,
      name TEXT NOT NULL,
      prefix TEXT NOT NULL,
      secret_hash TEXT COLLATE "C" NOT NULL UNIQUE,
      created_at DOUBLE PRECISION NOT NULL,
      last_used_at DOUBLE PRECISION,
      PRIMARY KEY (owner, id)
    )
    """,
    """
    CREATE TABLE prompts (
      version TEXT COLLATE "C" PRIMARY KEY,
      text TEXT NOT NULL,
      created_at DOUBLE PRECISION NOT NULL
    )
    """,
    # The one row that says which version new conversations get.
    """
    CREATE TABLE rollout (
      id BIGINT PRIMARY KEY CHECK (id = 1),
      base TEXT NOT NULL,
      version TEXT NOT NULL,
      share BIGINT NOT NULL,
      configured TEXT NOT NULL
    )
    """,
    # Links to snapshots of branches. They name messages and hold none.
    """
    CREATE TABLE shares (
      owner TEXT COLLATE "C" NOT NULL,
      id TEXT COLLATE "C" NOT NULL,
      conversation_id TEXT COLLATE "C" NOT NULL,
      leaf_id TEXT COLLATE "C" NOT NULL,
      path_messages BIGINT NOT NULL,
      left_out TEXT[] NOT NULL,
      token_hash TEXT COLLATE "C" NOT NULL UNIQUE,
      title TEXT NOT NULL,
      created_at DOUBLE PRECISION NOT NULL,
      PRIMARY KEY (owner, id)
    )
    """,
    "CREATE INDEX shares_conversation ON shares (owner, conversation_id)",
    "CREATE INDEX shares_leaf ON shares (owner, leaf_id)",
    # How often an owner's door was passed: by each turn that was admitted, and each deletion. Who
    # looked before another passed has to look again. `ledger_ms` is the latest moment at which the
    # owner's ledger was looked at or written: settlements are made one by one under this row's
    # lock, each later than that, and its time never goes back, whatever the clock does.
    """
    CREATE TABLE doors (
      owner TEXT COLLATE "C" PRIMARY KEY,
      passes BIGINT NOT NULL,
      ledger_ms BIGINT NOT NULL
    ) PARTITION BY HASH (owner)
    """,
    # The newest is what its owner wants now. An empty text ends it and keeps its number from being
    # used again.
    """
    CREATE TABLE instructions (
      owner TEXT COLLATE "C" NOT NULL,
      version BIGINT NOT NULL,
      text TEXT NOT NULL,
      tokens BIGINT NOT NULL,
      tokenizer TEXT NOT NULL,
      written_at DOUBLE PRECISION NOT NULL,
      PRIMARY KEY (owner, version)
    ) PARTITION BY HASH (owner)
    """,
    # `folded` is a text without regard to case: what a search looks at, the same in every store.
    """
    CREATE TABLE conversations (
      owner TEXT COLLATE "C" NOT NULL,
      id TEXT COLLATE "C" NOT NULL,
      key TEXT COLLATE "C",
      title TEXT NOT NULL,
      folded TEXT NOT NULL,
      titled_by TEXT NOT NULL DEFAULT 'words',
      prompt_version TEXT COLLATE "C" NOT NULL,
      instructions BIGINT NOT NULL DEFAULT 0,
      created_at DOUBLE PRECISION NOT NULL,
      updated_at DOUBLE PRECISION NOT NULL,
      pinned SMALLINT NOT NULL DEFAULT 0,
      archived BOOLEAN NOT NULL DEFAULT FALSE,
      model TEXT,
      head_message_id TEXT COLLATE "C",
      moves BIGINT NOT NULL DEFAULT 0,
      -- When it was brought along from elsewhere: `updated_at` may be long before.
      arrived_at DOUBLE PRECISION,
      PRIMARY KEY (owner, id),
      UNIQUE (owner, key)
    ) PARTITION BY HASH (owner)
    """,
    """
    CREATE INDEX conversations_list
    ON conversations (owner, archived, pinned DESC, updated_at DESC, id DESC)
    """,
    "CREATE INDEX conversations_prompt ON conversations (prompt_version)",
    """
    CREATE INDEX conversations_instructions ON conversations (owner, instructions)
    WHERE instructions > 0
    """,
    # `shown` is the conversation's `moves` when the message became its head. `signature` is that of
    # the text (`core.search`): what a search compares before it looks at the text.
    """
    CREATE TABLE messages (
      owner TEXT COLLATE "C" NOT NULL,
      conversation_id TEXT COLLATE "C" NOT NULL,
      seq BIGINT NOT NULL,
      id TEXT COLLATE "C" NOT NULL,
      parent_id TEXT COLLATE "C",
      shown BIGINT NOT NULL DEFAULT 0,
      signature BIT(1024) NOT NULL,
      role TEXT NOT NULL,
      content TEXT NOT NULL,
      folded TEXT NOT NULL,
      tokens BIGINT NOT NULL,
      tokenizer TEXT NOT NULL,
      status TEXT NOT NULL,
      created_at DOUBLE PRECISION NOT NULL,
      model TEXT,
      requested TEXT,
      reason TEXT,
      finish TEXT,
      notices TEXT[] NOT NULL DEFAULT '{}',
      failure TEXT,
      feedback TEXT,
      feedback_why TEXT,
      last_event_id BIGINT,
      ids BYTEA,
      PRIMARY KEY (owner, conversation_id, seq),
      UNIQUE (owner, id)
    ) PARTITION BY HASH (owner)
    """,
    # Roots have no parent, and are found by equality too.
    """
    CREATE INDEX messages_below
    ON messages (owner, conversation_id, coalesce(parent_id, ''), seq)
    """,
    # What a branch came to up to a message, which no branch but those through it can name. Whoever
    # deletes a conversation while such a row is written waits for it, and takes it along.
    """
    CREATE TABLE summaries (
      owner TEXT COLLATE "C" NOT NULL,
      conversation_id TEXT COLLATE "C" NOT NULL,
      upto TEXT COLLATE "C" NOT NULL,
      id TEXT COLLATE "C" NOT NULL,
      previous_id TEXT,
      text TEXT NOT NULL,
      tokens BIGINT NOT NULL,
      tokenizer TEXT NOT NULL,
      model TEXT NOT NULL,
      version TEXT NOT NULL,
      created_at DOUBLE PRECISION NOT NULL,
      PRIMARY KEY (owner, conversation_id, upto),
      FOREIGN KEY (owner, conversation_id) REFERENCES conversations (owner, id) ON DELETE CASCADE
    ) PARTITION BY HASH (owner)
    """,
    # What is to be made of conversations when nobody else needs the models. One that was given up
    # has no `due_at`, and stays, so that it is not begun again.
    """
    CREATE TABLE tasks (
      owner TEXT COLLATE "C" NOT NULL,
      conversation_id TEXT COLLATE "C" NOT NULL,
      kind TEXT NOT NULL,
      upto TEXT COLLATE "C" NOT NULL,
      room_tokens BIGINT NOT NULL,
      tries BIGINT NOT NULL,
      epoch BIGINT NOT NULL,
      due_at DOUBLE PRECISION,
      created_at DOUBLE PRECISION NOT NULL,
      PRIMARY KEY (owner, conversation_id, kind, upto),
      FOREIGN KEY (owner, conversation_id) REFERENCES conversations (owner, id) ON DELETE CASCADE
    ) PARTITION BY HASH (owner)
    """,
    "CREATE INDEX tasks_due ON tasks (due_at) WHERE due_at IS NOT NULL",
    # What a turn was and how it ended. While it is open, `final_…` are null and the columns of
    # `open_turns` hold instead.
    """
    CREATE TABLE turns (
      owner TEXT COLLATE "C" NOT NULL,
      reply_id TEXT COLLATE "C" NOT NULL,
      key TEXT COLLATE "C" NOT NULL,
      body_sha TEXT NOT NULL,
      kind TEXT NOT NULL,
      plan TEXT NOT NULL,
      lane BIGINT NOT NULL,
      requested TEXT NOT NULL,
      awaited TEXT,
      answer_tokens BIGINT NOT NULL,
      reserved BIGINT NOT NULL,
      sampling TEXT NOT NULL,
      attempt BIGINT NOT NULL,
      created_at DOUBLE PRECISION NOT NULL,
      conversation_id TEXT COLLATE "C",
      user_message_id TEXT COLLATE "C",
      prompt TEXT NOT NULL,
      notices TEXT[] NOT NULL,
      model TEXT,
      reason TEXT,
      replica TEXT,
      request_id TEXT,
      prompt_tokens BIGINT NOT NULL,
      difficulty BIGINT NOT NULL,
      finished_at DOUBLE PRECISION,
      finish TEXT,
      text TEXT NOT NULL,
      input_tokens BIGINT NOT NULL,
      cached_tokens BIGINT NOT NULL,
      output_tokens BIGINT NOT NULL,
      charged BIGINT NOT NULL,
      refusal TEXT,
      failure TEXT,
      last_event_id BIGINT NOT NULL,
      final_status TEXT,
      final_epoch BIGINT,
      final_followed_at DOUBLE PRECISION,
      final_stop_reason TEXT,
      summary_id TEXT,
      -- Of a turn of no conversation: what it goes on with.
      thread TEXT COLLATE "C",
      PRIMARY KEY (owner, reply_id),
      UNIQUE (owner, key)
    ) PARTITION BY HASH (owner)
    """,
    # Of one conversation, or of none: both are found by equality.
    "CREATE INDEX turns_conversation ON turns (owner, coalesce(conversation_id, ''))",
    # What is to be forgotten: of no conversation, the oldest end first.
    "CREATE INDEX turns_ended ON turns (finished_at) WHERE kind = 'stateless'",
    "CREATE INDEX turns_thread ON turns (owner, thread) WHERE thread IS NOT NULL",
    # One narrow row for each turn that is not final: what claims, leases, followers and budgets
    # look at and rewrite many times a second, whatever the history. Without it a claim would pass
    # over every running turn, as their leases can't be in an index of the wide table: each
    # renewal would then write all of that table's indexes.
    """
    CREATE TABLE open_turns (
      owner TEXT COLLATE "C" NOT NULL,
      reply_id TEXT COLLATE "C" NOT NULL,
      conversation_id TEXT COLLATE "C",
      user_message_id TEXT COLLATE "C",
      parent_id TEXT COLLATE "C",
      plan TEXT NOT NULL,
      lane BIGINT NOT NULL,
      rank BIGINT NOT NULL,
      cost BIGINT NOT NULL,
      awaited TEXT,
      model TEXT,
      created_at DOUBLE PRECISION NOT NULL,
      reserved BIGINT NOT NULL,
      answer_tokens BIGINT NOT NULL,
      budgets TEXT NOT NULL,
      abandon_s DOUBLE PRECISION,
      status TEXT NOT NULL,
      epoch BIGINT NOT NULL,
      lease_until DOUBLE PRECISION,
      followed_at DOUBLE PRECISION NOT NULL,
      stop_reason TEXT,
      PRIMARY KEY (owner, reply_id)
    ) PARTITION BY HASH (owner)
    """,
    """
    CREATE INDEX open_turns_waiting ON open_turns (lane, rank, created_at, reply_id)
    WHERE lease_until IS NULL
    """,
    "CREATE INDEX open_turns_held ON open_turns (lease_until) WHERE lease_until IS NOT NULL",
    # Marks of the keys of messages that were deleted: a retry that comes late must not bring one
    # back. They go with their conversation, for without it nothing comes back.
    """
    CREATE TABLE deleted_keys (
      owner TEXT COLLATE "C" NOT NULL,
      conversation_id TEXT COLLATE "C" NOT NULL,
      key_mark TEXT COLLATE "C" NOT NULL,
      PRIMARY KEY (owner, conversation_id, key_mark),
      FOREIGN KEY (owner, conversation_id) REFERENCES conversations (owner, id) ON DELETE CASCADE
    ) PARTITION BY HASH (owner)
    """,
    # What an owner's turns of a lane have come to: a new one is ranked by it.
    """
    CREATE TABLE tags (
      owner TEXT COLLATE "C" NOT NULL,
      lane BIGINT NOT NULL,
      tag BIGINT NOT NULL,
      PRIMARY KEY (owner, lane)
    ) PARTITION BY HASH (owner)
    """,
    "CREATE INDEX tags_order ON tags (lane, tag)",
    # How many turns of a lane were ever claimed for the first time, in parts that their owners
    # decide: claims of one moment seldom meet at one of them.
    """
    CREATE TABLE begun (
      lane BIGINT NOT NULL,
      part BIGINT NOT NULL,
      turns BIGINT NOT NULL,
      PRIMARY KEY (lane, part)
    ) WITH (fillfactor = 50)
    """,
    # What each run cost, and the budgets it was charged to. The key settles a run once.
    """
    CREATE TABLE settlements (
      owner TEXT COLLATE "C" NOT NULL,
      reply_id TEXT COLLATE "C" NOT NULL,
      epoch BIGINT NOT NULL,
      settled_ms BIGINT NOT NULL,
      charged BIGINT NOT NULL,
      input_tokens BIGINT NOT NULL,
      cached_tokens BIGINT NOT NULL,
      output_tokens BIGINT NOT NULL,
      plan TEXT NOT NULL,
      model TEXT,
      budgets TEXT NOT NULL,
      PRIMARY KEY (owner, reply_id, epoch)
    ) PARTITION BY HASH (owner)
    """,
    # What is used of each budget, as it follows from the settlements, and the budget's size and
    # refill when it was charged last.
    """
    CREATE TABLE balances (
      owner TEXT COLLATE "C" NOT NULL,
      budget TEXT COLLATE "C" NOT NULL,
      used BIGINT NOT NULL,
      at_ms BIGINT NOT NULL,
      size BIGINT NOT NULL,
      refill_ms BIGINT NOT NULL,
      PRIMARY KEY (owner, budget)
    ) PARTITION BY HASH (owner)
    """,
    # Deleted turns whose logs, in another system, are not known to be gone yet.
    """
    CREATE TABLE log_removals (
      owner TEXT COLLATE "C" NOT NULL,
      reply_id TEXT COLLATE "C" NOT NULL,
      deleted_at DOUBLE PRECISION NOT NULL,
      PRIMARY KEY (owner, reply_id)
    ) PARTITION BY HASH (owner)
    """,
    """
    CREATE TABLE files (
      owner TEXT COLLATE "C" NOT NULL,
      id TEXT COLLATE "C" NOT NULL,
      name TEXT NOT NULL,
      purpose TEXT NOT NULL,
      created_at DOUBLE PRECISION NOT NULL,
      expires_at DOUBLE PRECISION NOT NULL,
      size BIGINT NOT NULL,
      is_whole BOOLEAN NOT NULL,
      is_deleted BOOLEAN NOT NULL,
      PRIMARY KEY (owner, id)
    ) PARTITION BY HASH (owner)
    """,
    # What the sweep of each round looks for.
    "CREATE INDEX files_end ON files (expires_at) WHERE NOT is_deleted",
    "CREATE INDEX files_unfinished ON files (created_at) WHERE NOT is_whole AND NOT is_deleted",
    "CREATE INDEX files_deleted ON files (owner, id) WHERE is_deleted",
    """
    CREATE TABLE file_parts (
      owner TEXT COLLATE "C" NOT NULL,
      file_id TEXT COLLATE "C" NOT NULL,
      first_byte BIGINT NOT NULL,
      data BYTEA NOT NULL,
      PRIMARY KEY (owner, file_id, first_byte)
    ) PARTITION BY HASH (owner)
    """,
    """
    CREATE TABLE batches (
      owner TEXT COLLATE "C" NOT NULL,
      id TEXT COLLATE "C" NOT NULL,
      key TEXT COLLATE "C",
      body_sha TEXT NOT NULL,
      status TEXT NOT NULL,
      is_over BOOLEAN NOT NULL,
      is_deleted BOOLEAN NOT NULL,
      has_lines BOOLEAN NOT NULL,
      created_at DOUBLE PRECISION NOT NULL,
      epoch BIGINT NOT NULL,
      lease_until DOUBLE PRECISION,
      due_at DOUBLE PRECISION NOT NULL,
      saved_at DOUBLE PRECISION NOT NULL,
      details TEXT NOT NULL,
      PRIMARY KEY (owner, id),
      UNIQUE (owner, key)
    ) PARTITION BY HASH (owner)
    """,
    "CREATE INDEX batches_waiting ON batches (saved_at, id) WHERE NOT is_over AND NOT is_deleted",
    "CREATE INDEX batches_over ON batches (created_at) WHERE is_over OR is_deleted",
    """
    CREATE TABLE batch_lines (
      owner TEXT COLLATE "C" NOT NULL,
      batch_id TEXT COLLATE "C" NOT NULL,
      n BIGINT NOT NULL,
      number BIGINT NOT NULL,
      custom_id TEXT COLLATE "C" NOT NULL,
      first_byte BIGINT NOT NULL,
      size BIGINT NOT NULL,
      state TEXT NOT NULL,
      tries BIGINT NOT NULL,
      retry_at DOUBLE PRECISION NOT NULL,
      error TEXT,
      turn_key TEXT COLLATE "C" NOT NULL,
      PRIMARY KEY (owner, batch_id, n),
      UNIQUE (owner, batch_id, custom_id)
    ) PARTITION BY HASH (owner)
    """,
    "CREATE INDEX batch_lines_open ON batch_lines (owner, batch_id, n) WHERE state = 'open'",
    # What was ordered to be deleted, and what of it was reached when.
    """
    CREATE TABLE deletions (
      owner TEXT COLLATE "C" NOT NULL,
      target TEXT COLLATE "C" NOT NULL,
      kind TEXT NOT NULL,
      requested_at DOUBLE PRECISION NOT NULL,
      reached TEXT NOT NULL,
      looks BIGINT NOT NULL,
      due_at DOUBLE PRECISION NOT NULL,
      done_at DOUBLE PRECISION,
      PRIMARY KEY (owner, target)
    ) PARTITION BY HASH (owner)
    """,
    "CREATE INDEX deletions_due ON deletions (due_at) WHERE done_at IS NULL",
    "CREATE INDEX deletions_over ON deletions (done_at) WHERE done_at IS NOT NULL",
    "CREATE INDEX deletions_list ON deletions (requested_at, owner, target)",
    # Whose account was closed: the id refuses late writers, the mark keeps the name from others.
    """
    CREATE TABLE departed (
      id TEXT COLLATE "C" PRIMARY KEY,
      name_mark TEXT COLLATE "C" NOT NULL UNIQUE,
      left_at DOUBLE PRECISION NOT NULL
    )
    """,
    # What is older than its plan keeps it.
    "CREATE INDEX conversations_age ON conversations (owner, updated_at)",
    """
    CREATE TABLE imports (
      owner TEXT COLLATE "C" NOT NULL,
      id TEXT COLLATE "C" NOT NULL,
      state TEXT NOT NULL,
      created_at DOUBLE PRECISION NOT NULL,
      ended_at DOUBLE PRECISION,
      epoch BIGINT NOT NULL,
      lease_until DOUBLE PRECISION,
      details TEXT NOT NULL,
      PRIMARY KEY (owner, id)
    ) PARTITION BY HASH (owner)
    """,
    "CREATE INDEX imports_waiting ON imports (created_at, id) WHERE ended_at IS NULL",
)

_VIEWS = (
    # A reply in a conversation has its text once, in its message.
    """
    CREATE VIEW whole_turns AS
    SELECT t.*,
      coalesce(o.status, t.final_status) AS status,
      coalesce(o.epoch, t.final_epoch) AS epoch,
      o.lease_until,
      coalesce(o.followed_at, t.final_followed_at) AS followed_at,
      coalesce(o.stop_reason, t.final_stop_reason) AS stop_reason,
      o.budgets,
      o.abandon_s,
      coalesce(m.content, t.text) AS reply_text
    FROM turns t
    LEFT JOIN open_turns o ON o.owner = t.owner AND o.reply_id = t.reply_id
    LEFT JOIN messages m ON m.owner = t.owner AND m.id = t.reply_id
    """,
    # A message as pages give it: without tokens, and which of its parent's children it is.
    """
    CREATE VIEW page_messages AS
    SELECT owner, conversation_id, seq, id, parent_id, role, content, tokens, tokenizer, status,
      created_at, model, requested, reason, finish, notices, failure, feedback, last_event_id,
      CAST(NULL AS BYTEA) AS ids,
      (
        SELECT count(*) FROM messages s
        WHERE s.owner = m.owner AND s.conversation_id = m.conversation_id
          AND coalesce(s.parent_id, '') = coalesce(m.parent_id, '')
      ) AS versions,
      (
        SELECT count(*) FROM messages s
        WHERE s.owner = m.owner AND s.conversation_id = m.conversation_id
          AND coalesce(s.parent_id, '') = coalesce(m.parent_id, '') AND s.seq <= m.seq
      ) AS version,
      (
        SELECT s.id FROM messages s
        WHERE s.owner = m.owner AND s.conversation_id = m.conversation_id
          AND coalesce(s.parent_id, '') = coalesce(m.parent_id, '') AND s.seq < m.seq
        ORDER BY s.seq DESC LIMIT 1
      ) AS previous,
      (
        SELECT s.id FROM messages s
        WHERE s.owner = m.owner AND s.conversation_id = m.conversation_id
          AND coalesce(s.parent_id, '') = coalesce(m.parent_id, '') AND s.seq > m.seq
        ORDER BY s.seq LIMIT 1
      ) AS following
    FROM messages m
    """,
    # A conversation with the reply in progress: the newest open turn's.
    """
    CREATE VIEW shown_conversations AS
    SELECT c.*, (
      SELECT o.reply_id FROM open_turns o
      WHERE o.owner = c.owner AND o.conversation_id = c.id
      ORDER BY o.created_at DESC, o.reply_id DESC LIMIT 1
    ) AS active
    FROM conversations c
    """,
)

_FUNCTIONS_OVER_TABLES = (
    # Of the leaves at or below a message the one that was shown last, or else the newest. The
    # offset and the limits keep each step a look into an index, whatever the planner knows.
    """
    CREATE FUNCTION leaf_below(who TEXT, place TEXT, top TEXT) RETURNS TEXT
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
      WITH RECURSIVE below (id, shown, seq) AS (
        SELECT m.id, m.shown, m.seq FROM messages m
        WHERE m.owner = who AND m.id = top AND m.conversation_id = place
        UNION ALL
        SELECT m.id, m.shown, m.seq
        FROM below, LATERAL (
          SELECT id, shown, seq FROM messages
          WHERE owner = who AND conversation_id = place AND coalesce(parent_id, '') = below.id
          OFFSET 0
        ) AS m
      )
      SELECT below.id FROM below
      WHERE (
        SELECT m.id FROM messages m
        WHERE m.owner = who AND m.conversation_id = place AND coalesce(m.parent_id, '') = below.id
        LIMIT 1
      ) IS NULL
      ORDER BY below.shown DESC, below.seq DESC
      LIMIT 1
    $$
    """,
    # The same of a whole tree.
    """
    CREATE FUNCTION leaf_of(who TEXT, place TEXT) RETURNS TEXT
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
      SELECT l.id FROM messages l
      WHERE l.owner = who AND l.conversation_id = place
        AND (
          SELECT m.id FROM messages m
          WHERE m.owner = who AND m.conversation_id = place AND coalesce(m.parent_id, '') = l.id
          LIMIT 1
        ) IS NULL
      ORDER BY l.shown DESC, l.seq DESC
      LIMIT 1
    $$
    """,
    # An owner's tag in a lane, and the rank of the next turn there: `core.waiting.rank_of`.
    """
    CREATE FUNCTION standing_of(who TEXT, which BIGINT) RETURNS TABLE (tag BIGINT, rank BIGINT)
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
      SELECT own.tag, greatest(own.tag, own.floor, own.last + 1) FROM (
        SELECT
          coalesce((SELECT t.tag FROM tags t WHERE t.owner = who AND t.lane = which), 0) AS tag,
          coalesce(
            (
              SELECT o.rank FROM open_turns o WHERE o.lane = which AND o.lease_until IS NULL
              ORDER BY o.rank LIMIT 1
            ),
            (SELECT t.tag FROM tags t WHERE t.lane = which ORDER BY t.tag DESC LIMIT 1),
            0
          ) AS floor,
          coalesce(
            (
              SELECT max(o.rank) FROM open_turns o
              WHERE o.owner = who AND o.lane = which AND o.lease_until IS NULL
            ),
            -1
          ) AS last
      ) AS own
    $$
    """,
)

# Rows of these are rewritten again and again, each second or with each turn: room on the page for
# the next version, and a vacuum as soon as some thousand are dead, however many there are.
_OFTEN_REWRITTEN = ("doors", "open_turns", "tags", "balances")
_ROOM = """
WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
      autovacuum_vacuum_cost_delay = 0)
"""


def upgrade() -> None:
    """Creates every table."""
    for statement in (*_FUNCTIONS, *_TABLES, *_VIEWS, *_FUNCTIONS_OVER_TABLES):
        op.execute(statement)
    for table in _BY_OWNER:
        for n in range(_PARTITIONS):
            op.execute(
                f"CREATE TABLE {table}_{n} PARTITION OF {table} "
                f"FOR VALUES WITH (MODULUS {_PARTITIONS}, REMAINDER {n})"
                f"{_ROOM if table in _OFTEN_REWRITTEN else ''}"
            )


def downgrade() -> None:
    """There is no way back: a backup is."""
    raise NotImplementedError("migrations go forward only; restore a backup instead")
