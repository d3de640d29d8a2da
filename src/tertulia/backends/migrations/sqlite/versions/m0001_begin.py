"""The first schema: keys begin with the user wherever a row is theirs. Once released it stays."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SIGNATURE = [f"bits_{n}" for n in range(16)]

_TABLES = (
    """
    CREATE TABLE users (
      id TEXT PRIMARY KEY,
      name TEXT NOT NULL,
      name_key TEXT NOT NULL UNIQUE,
      role TEXT NOT NULL,
      plan TEXT NOT NULL,
      password_hash TEXT,
      created_at REAL NOT NULL,
      disabled INTEGER NOT NULL DEFAULT 0,
      evaluation INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID
    """,
    "CREATE INDEX users_evaluation ON users (id) WHERE evaluation = 1",
    # Who signs in by a provider: known by issuer and subject, and by nothing else.
    """
    CREATE TABLE identities (
      issuer TEXT NOT NULL,
      subject TEXT NOT NULL,
      user_id TEXT NOT NULL,
      created_at REAL NOT NULL,
      PRIMARY KEY (issuer, subject)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX identities_user ON identities (user_id)",
    """
    CREATE TABLE sessions (
      token_hash TEXT PRIMARY KEY,
      user_id TEXT NOT NULL,
      created_at REAL NOT NULL,
      expires_at REAL NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE INDEX sessions_user ON sessions (user_id)",
    "CREATE INDEX sessions_end ON sessions (expires_at)",
    """
    CREATE TABLE links (
      token_hash TEXT PRIMARY KEY,
      user_id TEXT NOT NULL,
      created_at REAL NOT NULL,
      expires_at REAL NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE api_keys (
      owner TEXT NOT NULL,
      id TEXT NOT NULL,
      name TEXT NOT NULL,
      prefix TEXT NOT NULL,
      secret_hash TEXT NOT NULL UNIQUE,
      created_at REAL NOT NULL,
      last_used_at REAL,
      PRIMARY KEY (owner, id)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE prompts (
      version TEXT PRIMARY KEY,
      text TEXT NOT NULL,
      created_at REAL NOT NULL
    ) WITHOUT ROWID
    """,
    # The one row that says which version new conversations get.
    """
    CREATE TABLE rollout (
      id INTEGER PRIMARY KEY CHECK (id = 1),
      base TEXT NOT NULL,
      version TEXT NOT NULL,
      share INTEGER NOT NULL,
      configured TEXT NOT NULL
    )
    """,
    # The newest is what its owner wants now. An empty text ends it and keeps its number from being
    # used again.
    """
    CREATE TABLE instructions (
      owner TEXT NOT NULL,
      version INTEGER NOT NULL,
      text TEXT NOT NULL,
      tokens INTEGER NOT NULL,
      tokenizer TEXT NOT NULL,
      written_at REAL NOT NULL,
      PRIMARY KEY (owner, version)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE conversations (
      owner TEXT NOT NULL,
      id TEXT NOT NULL,
      key TEXT,
      title TEXT NOT NULL,
      titled_by TEXT NOT NULL DEFAULT 'words',
      prompt_version TEXT NOT NULL,
      instructions INTEGER NOT NULL DEFAULT 0,
      created_at REAL NOT NULL,
      updated_at REAL NOT NULL,
      pinned INTEGER NOT NULL DEFAULT 0,
      archived INTEGER NOT NULL DEFAULT 0,
      model TEXT,
      head_message_id TEXT,
      moves INTEGER NOT NULL DEFAULT 0,
      -- When it was brought along from elsewhere: `updated_at` may be long before.
      arrived_at REAL,
      PRIMARY KEY (owner, id)
    ) WITHOUT ROWID
    """,
    "CREATE UNIQUE INDEX conversations_key ON conversations (owner, key) WHERE key IS NOT NULL",
    "CREATE INDEX conversations_prompt ON conversations (prompt_version)",
    """
    CREATE INDEX conversations_instructions ON conversations (owner, instructions)
    WHERE instructions > 0
    """,
    """
    CREATE INDEX conversations_list
    ON conversations (owner, archived, pinned DESC, updated_at DESC, id DESC)
    """,
    # `seq` in the key keeps the messages of one conversation together on disk. `shown` is the
    # conversation's `moves` when the message became its head. `bits_…` are the text's signature
    # (`core.search`).
    f"""
    CREATE TABLE messages (
      owner TEXT NOT NULL,
      conversation_id TEXT NOT NULL,
      seq INTEGER NOT NULL,
      id TEXT NOT NULL,
      parent_id TEXT,
      shown INTEGER NOT NULL DEFAULT 0,
      role TEXT NOT NULL,
      content TEXT NOT NULL,
      tokens INTEGER NOT NULL,
      tokenizer TEXT NOT NULL,
      status TEXT NOT NULL,
      created_at REAL NOT NULL,
      model TEXT,
      requested TEXT,
      reason TEXT,
      finish TEXT,
      notices TEXT NOT NULL DEFAULT '[]',
      failure TEXT,
      feedback TEXT,
      feedback_why TEXT,
      last_event_id INTEGER,
      ids BLOB,
      {", ".join(f"{bits} INTEGER NOT NULL" for bits in _SIGNATURE)},
      PRIMARY KEY (owner, conversation_id, seq),
      UNIQUE (owner, id),
      FOREIGN KEY (owner, conversation_id) REFERENCES conversations (owner, id) ON DELETE CASCADE
    )
    """,
    # What a search looks at before it looks at a text: a quarter of the bytes. Of a part that is
    # all of them, or pages would take it for their own key, which is narrower.
    f"""
    CREATE INDEX messages_signature
    ON messages (owner, conversation_id, seq, {", ".join(_SIGNATURE)}) WHERE seq > 0
    """,
    "CREATE INDEX messages_below ON messages (owner, conversation_id, parent_id, seq)",
    # A message as pages give it: without tokens, and which of its parent's children it is.
    """
    CREATE VIEW page_messages AS
    SELECT owner, conversation_id, seq, id, parent_id, role, content, tokens, tokenizer, status,
      created_at, model, requested, reason, finish, notices, failure, feedback, last_event_id,
      NULL AS ids,
      (
        SELECT count(*) FROM messages s
        WHERE s.owner = m.owner AND s.conversation_id = m.conversation_id
          AND s.parent_id IS m.parent_id
      ) AS versions,
      (
        SELECT count(*) FROM messages s
        WHERE s.owner = m.owner AND s.conversation_id = m.conversation_id
          AND s.parent_id IS m.parent_id AND s.seq <= m.seq
      ) AS version,
      (
        SELECT s.id FROM messages s
        WHERE s.owner = m.owner AND s.conversation_id = m.conversation_id
          AND s.parent_id IS m.parent_id AND s.seq < m.seq
        ORDER BY s.seq DESC LIMIT 1
      ) AS previous,
      (
        SELECT s.id FROM messages s
        WHERE s.owner = m.owner AND s.conversation_id = m.conversation_id
          AND s.parent_id IS m.parent_id AND s.seq > m.seq
        ORDER BY s.seq LIMIT 1
      ) AS following
    FROM messages m
    """,
    # What a branch came to up to a message, which no branch but those through it can name.
    """
    CREATE TABLE summaries (
      owner TEXT NOT NULL,
      conversation_id TEXT NOT NULL,
      upto TEXT NOT NULL,
      id TEXT NOT NULL,
      previous_id TEXT,
      text TEXT NOT NULL,
      tokens INTEGER NOT NULL,
      tokenizer TEXT NOT NULL,
      model TEXT NOT NULL,
      version TEXT NOT NULL,
      created_at REAL NOT NULL,
      PRIMARY KEY (owner, conversation_id, upto),
      FOREIGN KEY (owner, conversation_id) REFERENCES conversations (owner, id) ON DELETE CASCADE
    ) WITHOUT ROWID
    """,
    # What is to be made of conversations when nobody else needs the models. One that was given up
    # has no `due_at`, and stays, so that it is not begun again.
    """
    CREATE TABLE tasks (
      owner TEXT NOT NULL,
      conversation_id TEXT NOT NULL,
      kind TEXT NOT NULL,
      upto TEXT NOT NULL,
      room_tokens INTEGER NOT NULL,
      tries INTEGER NOT NULL,
      epoch INTEGER NOT NULL,
      due_at REAL,
      created_at REAL NOT NULL,
      PRIMARY KEY (owner, conversation_id, kind, upto),
      FOREIGN KEY (owner, conversation_id) REFERENCES conversations (owner, id) ON DELETE CASCADE
    ) WITHOUT ROWID
    """,
    "CREATE INDEX tasks_due ON tasks (due_at) WHERE due_at IS NOT NULL",
    # Links to snapshots of branches, by the hash of their secret. They name messages and hold none:
    # what deletes the end of a branch, or its conversation, deletes the link.
    """
    CREATE TABLE shares (
      owner TEXT NOT NULL,
      id TEXT NOT NULL,
      conversation_id TEXT NOT NULL,
      leaf_id TEXT NOT NULL,
      path_messages INTEGER NOT NULL,
      left_out TEXT NOT NULL,
      token_hash TEXT NOT NULL UNIQUE,
      title TEXT NOT NULL,
      created_at REAL NOT NULL,
      PRIMARY KEY (owner, id),
      FOREIGN KEY (owner, conversation_id) REFERENCES conversations (owner, id) ON DELETE CASCADE,
      FOREIGN KEY (owner, leaf_id) REFERENCES messages (owner, id) ON DELETE CASCADE
    ) WITHOUT ROWID
    """,
    "CREATE INDEX shares_conversation ON shares (owner, conversation_id)",
    "CREATE INDEX shares_leaf ON shares (owner, leaf_id)",
    """
    CREATE TABLE turns (
      id INTEGER PRIMARY KEY,
      owner TEXT NOT NULL,
      reply_id TEXT NOT NULL UNIQUE,
      key TEXT NOT NULL,
      body_sha TEXT NOT NULL,
      kind TEXT NOT NULL,
      plan TEXT NOT NULL,
      lane INTEGER NOT NULL,
      rank INTEGER NOT NULL DEFAULT 0,
      requested TEXT NOT NULL,
      awaited TEXT,
      answer_tokens INTEGER NOT NULL,
      reserved INTEGER NOT NULL,
      sampling TEXT NOT NULL,
      status TEXT NOT NULL,
      epoch INTEGER NOT NULL,
      attempt INTEGER NOT NULL,
      created_at REAL NOT NULL,
      budgets TEXT NOT NULL,
      abandon_s REAL,
      conversation_id TEXT,
      -- Of a turn of no conversation: what it goes on with.
      thread TEXT,
      user_message_id TEXT,
      parent_id TEXT,
      prompt TEXT NOT NULL,
      notices TEXT NOT NULL,
      lease_until REAL,
      followed_at REAL NOT NULL,
      model TEXT,
      reason TEXT,
      replica TEXT,
      request_id TEXT,
      prompt_tokens INTEGER NOT NULL,
      summary_id TEXT,
      difficulty INTEGER NOT NULL,
      finished_at REAL,
      finish TEXT,
      text TEXT NOT NULL,
      input_tokens INTEGER NOT NULL,
      cached_tokens INTEGER NOT NULL,
      output_tokens INTEGER NOT NULL,
      charged INTEGER NOT NULL,
      refusal TEXT,
      failure TEXT,
      last_event_id INTEGER NOT NULL,
      stop_reason TEXT,
      UNIQUE (owner, key)
    )
    """,
    # What is to be forgotten: of no conversation, the oldest end first.
    "CREATE INDEX turns_ended ON turns (finished_at) WHERE kind = 'stateless'",
    "CREATE INDEX turns_thread ON turns (owner, thread) WHERE thread IS NOT NULL",
    # Open turns are few: these two stay small whatever the history.
    """
    CREATE INDEX turns_queue ON turns (lane, lease_until IS NULL, rank, created_at, reply_id)
    WHERE status IN ('queued', 'running')
    """,
    """
    CREATE INDEX turns_running ON turns (owner, conversation_id)
    WHERE status IN ('queued', 'running')
    """,
    # A reply in a conversation has its text once, in its message.
    """
    CREATE VIEW whole_turns AS
    SELECT t.*, coalesce(m.content, t.text) AS reply_text
    FROM turns t LEFT JOIN messages m ON m.owner = t.owner AND m.id = t.reply_id
    """,
    # Marks of the keys of messages that were deleted: a retry that comes late must not bring one
    # back. They go with their conversation, for without it nothing comes back.
    """
    CREATE TABLE deleted_keys (
      owner TEXT NOT NULL,
      conversation_id TEXT NOT NULL,
      key_mark TEXT NOT NULL,
      PRIMARY KEY (owner, conversation_id, key_mark),
      FOREIGN KEY (owner, conversation_id) REFERENCES conversations (owner, id) ON DELETE CASCADE
    ) WITHOUT ROWID
    """,
    # What an owner's turns of a lane have come to: a new one is ranked by it.
    """
    CREATE TABLE tags (
      owner TEXT NOT NULL,
      lane INTEGER NOT NULL,
      tag INTEGER NOT NULL,
      PRIMARY KEY (owner, lane)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX tags_order ON tags (lane, tag)",
    # How many turns of a lane were ever claimed for the first time.
    "CREATE TABLE begun (lane INTEGER PRIMARY KEY, turns INTEGER NOT NULL)",
    # What each run cost, and the budgets it was charged to. The key settles a run once.
    """
    CREATE TABLE settlements (
      owner TEXT NOT NULL,
      reply_id TEXT NOT NULL,
      epoch INTEGER NOT NULL,
      settled_ms INTEGER NOT NULL,
      charged INTEGER NOT NULL,
      input_tokens INTEGER NOT NULL,
      cached_tokens INTEGER NOT NULL,
      output_tokens INTEGER NOT NULL,
      plan TEXT NOT NULL,
      model TEXT,
      budgets TEXT NOT NULL,
      PRIMARY KEY (owner, reply_id, epoch)
    ) WITHOUT ROWID
    """,
    # One row of each owner that admission and settlement read and write: the latest moment at which
    # the owner's ledger was looked at or written, after which the next settlement lies.
    """
    CREATE TABLE doors (
      owner TEXT PRIMARY KEY,
      ledger_ms INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    # What is used of each budget, as it follows from the settlements, and the budget's size and
    # refill when it was charged last.
    """
    CREATE TABLE balances (
      owner TEXT NOT NULL,
      budget TEXT NOT NULL,
      used INTEGER NOT NULL,
      at_ms INTEGER NOT NULL,
      size INTEGER NOT NULL,
      refill_ms INTEGER NOT NULL,
      PRIMARY KEY (owner, budget)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE log_heads (
      reply_id TEXT PRIMARY KEY,
      fence INTEGER NOT NULL,
      attempt INTEGER NOT NULL,
      last INTEGER NOT NULL,
      buried_at REAL
    ) WITHOUT ROWID
    """,
    "CREATE INDEX log_buried ON log_heads (buried_at) WHERE buried_at IS NOT NULL",
    """
    CREATE TABLE log_entries (
      reply_id TEXT NOT NULL,
      seq INTEGER NOT NULL,
      kind TEXT NOT NULL,
      data BLOB NOT NULL,
      ids BLOB NOT NULL,
      PRIMARY KEY (reply_id, seq)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE files (
      owner TEXT NOT NULL,
      id TEXT NOT NULL,
      name TEXT NOT NULL,
      purpose TEXT NOT NULL,
      created_at REAL NOT NULL,
      expires_at REAL NOT NULL,
      size INTEGER NOT NULL,
      is_whole INTEGER NOT NULL,
      is_deleted INTEGER NOT NULL,
      PRIMARY KEY (owner, id)
    ) WITHOUT ROWID
    """,
    # What the sweep of each round looks for.
    "CREATE INDEX files_end ON files (expires_at) WHERE is_deleted = 0",
    "CREATE INDEX files_unfinished ON files (created_at) WHERE is_whole = 0 AND is_deleted = 0",
    "CREATE INDEX files_deleted ON files (owner, id) WHERE is_deleted = 1",
    """
    CREATE TABLE file_parts (
      owner TEXT NOT NULL,
      file_id TEXT NOT NULL,
      first_byte INTEGER NOT NULL,
      data BLOB NOT NULL,
      PRIMARY KEY (owner, file_id, first_byte)
    )
    """,
    """
    CREATE TABLE batches (
      owner TEXT NOT NULL,
      id TEXT NOT NULL,
      key TEXT,
      body_sha TEXT NOT NULL,
      status TEXT NOT NULL,
      is_over INTEGER NOT NULL,
      is_deleted INTEGER NOT NULL,
      has_lines INTEGER NOT NULL,
      created_at REAL NOT NULL,
      epoch INTEGER NOT NULL,
      lease_until REAL,
      due_at REAL NOT NULL,
      saved_at REAL NOT NULL,
      details TEXT NOT NULL,
      PRIMARY KEY (owner, id)
    ) WITHOUT ROWID
    """,
    "CREATE UNIQUE INDEX batches_key ON batches (owner, key) WHERE key IS NOT NULL",
    """
    CREATE INDEX batches_waiting ON batches (saved_at, id)
    WHERE is_over = 0 AND is_deleted = 0
    """,
    "CREATE INDEX batches_over ON batches (created_at) WHERE is_over = 1 OR is_deleted = 1",
    """
    CREATE TABLE batch_lines (
      owner TEXT NOT NULL,
      batch_id TEXT NOT NULL,
      n INTEGER NOT NULL,
      number INTEGER NOT NULL,
      custom_id TEXT NOT NULL,
      first_byte INTEGER NOT NULL,
      size INTEGER NOT NULL,
      state TEXT NOT NULL,
      tries INTEGER NOT NULL,
      retry_at REAL NOT NULL,
      error TEXT,
      turn_key TEXT NOT NULL,
      PRIMARY KEY (owner, batch_id, n),
      UNIQUE (owner, batch_id, custom_id)
    )
    """,
    "CREATE INDEX batch_lines_open ON batch_lines (owner, batch_id, n) WHERE state = 'open'",
    # What was ordered to be deleted, and what of it was reached when.
    """
    CREATE TABLE deletions (
      owner TEXT NOT NULL,
      target TEXT NOT NULL,
      kind TEXT NOT NULL,
      requested_at REAL NOT NULL,
      reached TEXT NOT NULL,
      looks INTEGER NOT NULL,
      due_at REAL NOT NULL,
      done_at REAL,
      PRIMARY KEY (owner, target)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX deletions_due ON deletions (due_at) WHERE done_at IS NULL",
    "CREATE INDEX deletions_over ON deletions (done_at) WHERE done_at IS NOT NULL",
    "CREATE INDEX deletions_list ON deletions (requested_at, owner, target)",
    # Whose account was closed: the id refuses late writers, the mark keeps the name from others.
    """
    CREATE TABLE departed (
      id TEXT PRIMARY KEY,
      name_mark TEXT NOT NULL UNIQUE,
      left_at REAL NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE imports (
      owner TEXT NOT NULL,
      id TEXT NOT NULL,
      state TEXT NOT NULL,
      created_at REAL NOT NULL,
      ended_at REAL,
      epoch INTEGER NOT NULL,
      lease_until REAL,
      details TEXT NOT NULL,
      PRIMARY KEY (owner, id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX imports_waiting ON imports (created_at, id) WHERE ended_at IS NULL",
)


def upgrade() -> None:
    """Creates every table."""
    for statement in _TABLES:
        op.execute(statement)


def downgrade() -> None:
    """There is no way back: a backup is."""
    raise NotImplementedError("migrations go forward only; restore a backup instead")
