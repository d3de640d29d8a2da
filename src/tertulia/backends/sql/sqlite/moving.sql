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
    sum(input_tokens) AS input_tokens,
    sum(cached_tokens) AS cached_tokens,
    sum(output_tokens) AS output_tokens,
    sum(charged) AS charged
  FROM settlements
  WHERE owner = :owner
  GROUP BY settled_ms / 86400000, model
  ORDER BY day DESC, coalesce(model, '')
  LIMIT :rows
) AS newest
ORDER BY day, coalesce(model, '');

-- name: there
-- How many messages a conversation has that came in under a key, or is there by an id.
SELECT (
    SELECT count(*) FROM messages m WHERE m.owner = c.owner AND m.conversation_id = c.id
  ) AS messages
FROM conversations c
WHERE c.owner = :owner AND (c.key = :key OR c.id = :same_as)
ORDER BY c.id = :same_as DESC
LIMIT 1;

-- name: add_conversation
-- A conversation that comes in as it was elsewhere.
INSERT INTO conversations (
  owner, id, key, title, titled_by, prompt_version, created_at, updated_at, pinned, archived, model,
  head_message_id, moves, arrived_at
) VALUES (
  :owner, :id, :key, :title, 'person', :prompt_version, :created_at, :updated_at, :pinned, :archived,
  :model, :head_message_id, 1, :now
);

-- name: active
-- How many imports of an owner have not ended.
SELECT count(*) AS imports FROM imports WHERE owner = :owner AND ended_at IS NULL;

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
WHERE owner = :owner AND (:after IS NULL OR id < :after)
ORDER BY id DESC
LIMIT :rows;

-- name: write
-- All of an import, whoever has it.
UPDATE imports
SET state = :state, ended_at = :ended_at, epoch = :epoch, details = :details,
    lease_until = :lease_until
WHERE owner = :owner AND id = :id;

-- name: delete
-- Removes an import of an owner, or all.
DELETE FROM imports WHERE owner = :owner AND (:id IS NULL OR id = :id);

-- name: due
-- The import that was made first, of those that have not ended and that nobody works on.
SELECT * FROM imports
WHERE ended_at IS NULL AND (lease_until IS NULL OR lease_until <= :now)
ORDER BY created_at, id
LIMIT 1;

-- name: held
-- An import, if this is the epoch of its last claim.
SELECT id FROM imports WHERE owner = :owner AND id = :id AND epoch = :epoch;

-- name: sweep
-- Removes imports that ended long ago.
DELETE FROM imports WHERE ended_at <= :old;
