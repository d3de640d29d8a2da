"""The first schema: keys begin with the user wherever a row is theirs. Once released it stays."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

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
      disabled INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID
    """,
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
    "CREATE TABLE prompts (version TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE conversations (
      owner TEXT NOT NULL,
      id TEXT NOT NULL,
      key TEXT,
      title TEXT NOT NULL,
      prompt_version TEXT NOT NULL,
      created_at REAL NOT NULL,
      updated_at REAL NOT NULL,
      pinned INTEGER NOT NULL DEFAULT 0,
      archived INTEGER NOT NULL DEFAULT 0,
      model TEXT,
      head_message_id TEXT,
      PRIMARY KEY (owner, id)
    ) WITHOUT ROWID
    """,
    "CREATE UNIQUE INDEX conversations_key ON conversations (owner, key) WHERE key IS NOT NULL",
    """
    CREATE INDEX conversations_list
    ON conversations (owner, archived, pinned DESC, updated_at DESC, id DESC)
    """,
    # `seq` in the key keeps the messages of one conversation together on disk.
    """
    CREATE TABLE messages (
      owner TEXT NOT NULL,
      conversation_id TEXT NOT NULL,
      seq INTEGER NOT NULL,
      id TEXT NOT NULL,
      parent_id TEXT,
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
      PRIMARY KEY (owner, conversation_id, seq),
      UNIQUE (owner, id),
      FOREIGN KEY (owner, conversation_id) REFERENCES conversations (owner, id) ON DELETE CASCADE
    )
    """,
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
      requested TEXT NOT NULL,
      answer_tokens INTEGER NOT NULL,
      reserved INTEGER NOT NULL,
      sampling TEXT NOT NULL,
      status TEXT NOT NULL,
      epoch INTEGER NOT NULL,
      attempt INTEGER NOT NULL,
      created_at REAL NOT NULL,
      conversation_id TEXT,
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
    "CREATE INDEX turns_conversation ON turns (owner, conversation_id)",
    # Open turns are few: these two stay small whatever the history.
    """
    CREATE INDEX turns_queue ON turns (lane, created_at, reply_id)
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
    """
    CREATE TABLE settlements (
      owner TEXT NOT NULL,
      day INTEGER NOT NULL,
      reply_id TEXT NOT NULL,
      epoch INTEGER NOT NULL,
      settled_at REAL NOT NULL,
      charged INTEGER NOT NULL,
      input_tokens INTEGER NOT NULL,
      cached_tokens INTEGER NOT NULL,
      output_tokens INTEGER NOT NULL,
      plan TEXT NOT NULL,
      model TEXT,
      PRIMARY KEY (owner, day, reply_id, epoch)
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
)


def upgrade() -> None:
    """Creates every table."""
    for statement in _TABLES:
        op.execute(statement)


def downgrade() -> None:
    """There is no way back: a backup is."""
    raise NotImplementedError("migrations go forward only; restore a backup instead")
