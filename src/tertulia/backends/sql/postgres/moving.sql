-- Everything of one owner in order, and imports. A lease is live while it lies after now, store's
-- clock.

-- name: count
-- All conversations of an owner.
SELECT count(*) AS conversations FROM conversations WHERE owner = :owner;

-- name: conversations
-- Conversations of an owner after an id.
SELECT *, NULL AS active FROM conversations
WHERE owner = :owner AND id > :after
ORDER BY id
LIMIT :rows;

-- name: messages
-- Messages of a conversation after a number, without tokens.
SELECT owner, conversation_id, seq, id, parent_id, role, content, tokens, tokenizer, status,
       created_at, model, requested, reason, finish, notices, failure, feedback, feedback_why,
       last_event_id, NULL AS ids
FROM messages
WHERE owner = :owner AND conversation_id = :conversation_id AND seq > :after
ORDER BY seq
LIMIT :rows;

-- name: used
-- What an owner used by day and model, the newest days.
SELECT * FROM (
  SELECT settled_ms / 86400000 AS day, model, count(DISTINCT reply_id) AS replies,
    CAST(sum(input_tokens) AS BIGINT) AS input_tokens,
    CAST(sum(cached_tokens) AS BIGINT) AS cached_tokens,
    CAST(sum(output_tokens) AS BIGINT) AS output_tokens,
    CAST(sum(charged) AS BIGINT) AS charged
  FROM settlements
  WHERE owner = :owner
  GROUP BY settled_ms / 86400000, model
  ORDER BY day DESC, coalesce(model, '') COLLATE "C"
  LIMIT :rows
) AS newest
ORDER BY day, coalesce(model, '') COLLATE "C";

-- name: there
-- How many messages a conversation has that came in under a key, or is there by an id.
SELECT (
    SELECT count(*) FROM messages m WHERE m.owner = c.owner AND m.conversation_id = c.id
  ) AS messages
FROM conversations c
WHERE c.owner = :owner AND (c.key = :key OR c.id = CAST(:same_as AS TEXT))
ORDER BY c.id = CAST(:same_as AS TEXT) DESC NULLS LAST
LIMIT 1;

-- name: add_conversation
-- A conversation that comes in as it was elsewhere.
INSERT INTO conversations (
  owner, id, key, title, folded, titled_by, prompt_version, created_at, updated_at, pinned, archived,
  model, head_message_id, moves, arrived_at
) VALUES (
  :owner, :id, :key, :title, :folded, 'person', :prompt_version, :created_at, :updated_at, :pinned,
  :archived, :model, :head_message_id, 1, moment(:now)
);

-- name: add_messages
-- The messages of such a conversation. `notices` are JSON here: arrays hold no arrays of their own.
INSERT INTO messages (
  owner, conversation_id, seq, id, parent_id, shown, role, content, folded, signature, tokens,
  tokenizer, status, created_at, model, requested, reason, finish, notices, failure, feedback,
  feedback_why
)
SELECT :owner, :conversation_id, m.seq, m.id, m.parent_id,
  CASE WHEN m.id = CAST(:head_message_id AS TEXT) THEN 1 ELSE 0 END,
  m.role, m.content, m.folded, m.signature, m.tokens, m.tokenizer, m.status, m.created_at, m.model, m.requested, m.reason, m.finish,
  ARRAY(SELECT json_array_elements_text(CAST(m.notices AS JSON))), m.failure, m.feedback,
  m.feedback_why
FROM unnest(
  CAST(:seq AS BIGINT[]), CAST(:ids AS TEXT[]), CAST(:parent_id AS TEXT[]), CAST(:role AS TEXT[]),
  CAST(:content AS TEXT[]), CAST(:folded AS TEXT[]), CAST(:signature AS BIT(1024)[]), CAST(:tokens AS BIGINT[]),
  CAST(:tokenizer AS TEXT[]), CAST(:status AS TEXT[]), CAST(:created_at AS DOUBLE PRECISION[]),
  CAST(:model AS TEXT[]), CAST(:requested AS TEXT[]), CAST(:reason AS TEXT[]),
  CAST(:finish AS TEXT[]), CAST(:notices AS TEXT[]), CAST(:failure AS TEXT[]),
  CAST(:feedback AS TEXT[]), CAST(:feedback_why AS TEXT[])
) AS m (
  seq, id, parent_id, role, content, folded, signature, tokens, tokenizer, status, created_at,
  model, requested, reason, finish, notices, failure, feedback, feedback_why
);

-- name: active
-- How many imports of an owner have not ended, and what time it is.
SELECT moment(:now) AS now, (
  SELECT count(*) FROM imports WHERE owner = :owner AND ended_at IS NULL
) AS imports;

-- name: add
-- A new import, to be taken up at once.
INSERT INTO imports (owner, id, state, created_at, ended_at, epoch, lease_until, details)
VALUES (:owner, :id, :state, :created_at, :ended_at, :epoch, NULL, :details);

-- name: find
-- An import of an owner.
SELECT * FROM imports WHERE owner = :owner AND id = :id;

-- name: page
-- Imports of an owner, the newest first.
SELECT * FROM imports
WHERE owner = :owner AND (CAST(:after AS TEXT) IS NULL OR id < :after)
ORDER BY id DESC
LIMIT :rows;

-- name: find_to_change
-- An import of an owner, which nobody else changes until the transaction ends.
SELECT *, moment(:now) AS now FROM imports WHERE owner = :owner AND id = :id FOR UPDATE;

-- name: held
-- An import, if this is the epoch of its last claim; nobody else changes it until the transaction
-- ends.
SELECT moment(:now) AS now FROM imports
WHERE owner = :owner AND id = :id AND epoch = :epoch
FOR UPDATE;

-- name: write
-- All of an import, whoever has it; without a lease's length nobody has it afterwards.
UPDATE imports
SET state = :state, ended_at = :ended_at, epoch = :epoch, details = :details,
    lease_until = moment(:now) + CAST(:lease_s AS DOUBLE PRECISION)
WHERE owner = :owner AND id = :id;

-- name: delete
-- Removes an import of an owner, or all; how many.
WITH gone AS (
  DELETE FROM imports
  WHERE owner = :owner AND (CAST(:id AS TEXT) IS NULL OR id = :id)
  RETURNING id
)
SELECT count(*) AS imports FROM gone;

-- name: due
-- The import that was made first, of those that have not ended and that nobody works on.
SELECT * FROM imports
WHERE ended_at IS NULL AND (lease_until IS NULL OR lease_until <= moment(:now))
ORDER BY created_at, id
LIMIT 1
FOR UPDATE SKIP LOCKED;

-- name: sweep
-- Removes imports that ended long ago; how many.
WITH gone AS (
  DELETE FROM imports
  WHERE ended_at <= moment(:now) - CAST(:kept_s AS DOUBLE PRECISION)
  RETURNING id
)
SELECT count(*) AS imports FROM gone;
