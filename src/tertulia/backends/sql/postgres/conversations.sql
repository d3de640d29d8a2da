-- Conversations of one owner. `active` is the newest open turn's reply.

-- name: get
-- One conversation with its reply in progress.
SELECT c.* FROM shown_conversations c
WHERE c.owner = :owner AND c.id = :id;

-- name: create
-- A new conversation, unless its key or its id is there already, with the instructions that its
-- owner has now.
INSERT INTO conversations (
  owner, id, key, title, folded, prompt_version, instructions, created_at, updated_at
)
SELECT :owner, :id, :key, '', '', :prompt_version, coalesce((
    SELECT version FROM instructions WHERE owner = :owner AND text <> ''
    ORDER BY version DESC LIMIT 1
  ), 0), moment(:now), moment(:now)
ON CONFLICT DO NOTHING
RETURNING *, NULL AS active;

-- name: made
-- The conversation that was made with a key, or else the one with this id.
SELECT c.* FROM shown_conversations c
WHERE c.owner = :owner AND (c.key = :key OR c.id = :id)
ORDER BY c.key = :key DESC NULLS LAST
LIMIT 1;

-- name: page
-- Conversations after a place, pinned first, then newest; a place of 2 is before all.
SELECT c.* FROM shown_conversations c
WHERE c.owner = :owner AND c.archived = :archived
  AND (c.pinned, c.updated_at, c.id) < (:pinned, :updated_at, :after)
ORDER BY c.pinned DESC, c.updated_at DESC, c.id DESC
LIMIT :rows;

-- name: last_looked
-- The place of the last conversation that one search looks through, and the next one if there is.
SELECT c.pinned, c.updated_at, c.id FROM conversations c
WHERE c.owner = :owner AND c.archived = :archived
  AND (c.pinned, c.updated_at, c.id) < (:pinned, :updated_at, :after)
ORDER BY c.pinned DESC, c.updated_at DESC, c.id DESC
LIMIT 2 OFFSET CAST(:looked AS BIGINT) - 1;

-- name: search
-- The same as a page, down to a place, of those whose title holds a word in any case, or a message,
-- with the text of the newest such one. Signatures are compared before texts: without the order of a
-- CASE the planner takes both for equally cheap.
SELECT f.* FROM (
  SELECT c.*, CASE WHEN strpos(c.folded, :word) > 0 THEN '' ELSE (
      SELECT m.content FROM messages m
      WHERE m.owner = :owner AND m.conversation_id = c.id
        AND CASE WHEN (m.signature & :signature) = :signature
          THEN strpos(m.folded, :word) > 0 ELSE FALSE END
      ORDER BY m.seq DESC LIMIT 1
    ) END AS said
  FROM shown_conversations c
  WHERE c.owner = :owner AND c.archived = :archived
    AND (c.pinned, c.updated_at, c.id) < (:pinned, :updated_at, :after)
    AND (c.pinned, c.updated_at, c.id) >= (:last_pinned, :last_updated_at, :last)
) AS f
WHERE f.said IS NOT NULL
ORDER BY f.pinned DESC, f.updated_at DESC, f.id DESC
LIMIT :rows;

-- name: change
-- The fields that a person may change; null leaves one as it is.
WITH changed AS (
  UPDATE conversations SET
    title = coalesce(:title, title), folded = coalesce(:folded, folded),
    titled_by = coalesce(:titled_by, titled_by),
    pinned = coalesce(:pinned, pinned), archived = coalesce(:archived, archived)
  WHERE owner = :owner AND id = :id
  RETURNING *
)
SELECT c.*, (
    SELECT o.reply_id FROM open_turns o
    WHERE o.owner = c.owner AND o.conversation_id = c.id
    ORDER BY o.created_at DESC, o.reply_id DESC LIMIT 1
  ) AS active
FROM changed c;

-- name: may_delete
-- Whether there is anything to delete: a conversation, unless it is too young; or what belongs to
-- none.
SELECT 1 AS yes FROM conversations
WHERE owner = :owner AND id = :id AND (
  CAST(:idle_s AS DOUBLE PRECISION) IS NULL
  OR greatest(updated_at, arrived_at) <= moment(:now) - :idle_s
)
UNION ALL
SELECT 1 WHERE CAST(:id AS TEXT) IS NULL;

-- name: held
-- The open turns of a conversation, or of none, which nobody else ends until the transaction does:
-- whoever ends one at the same moment ends it before or finds it gone. Locked in the order of all.
SELECT o.reply_id, o.created_at, o.epoch, o.reserved, o.answer_tokens, o.budgets, o.lane, t.plan,
  t.model
FROM open_turns o JOIN turns t ON t.owner = o.owner AND t.reply_id = o.reply_id
WHERE o.owner = :owner AND coalesce(o.conversation_id, '') = coalesce(:id, '')
ORDER BY o.reply_id
FOR UPDATE OF o;

-- name: delete
-- Removes a conversation, or the turns of none, and keeps the ids of their logs for burial.
WITH running AS (
  DELETE FROM open_turns
  WHERE owner = :owner AND coalesce(conversation_id, '') = coalesce(:id, '')
  RETURNING reply_id, created_at, lane, cost, epoch
), tagged AS (
  UPDATE tags SET tag = tags.tag - unused.cost
  FROM (
    SELECT lane, CAST(sum(cost) AS BIGINT) AS cost FROM running WHERE epoch = 0 GROUP BY lane
  ) AS unused
  WHERE tags.owner = :owner AND tags.lane = unused.lane
), gone AS (
  DELETE FROM turns
  WHERE owner = :owner AND coalesce(conversation_id, '') = coalesce(:id, '')
  RETURNING owner, reply_id
), logged AS (
  INSERT INTO log_removals (owner, reply_id, deleted_at)
  SELECT owner, reply_id, moment(:now) FROM gone
  ON CONFLICT (owner, reply_id) DO NOTHING
), shared AS (
  DELETE FROM shares WHERE owner = :owner AND conversation_id = :id
), said AS (
  DELETE FROM messages WHERE owner = :owner AND conversation_id = :id
), place AS (
  DELETE FROM conversations WHERE owner = :owner AND id = :id
)
SELECT
  ARRAY(SELECT reply_id FROM running ORDER BY created_at, reply_id) AS running,
  ARRAY(SELECT reply_id FROM gone) AS gone;

-- name: unburied
-- Logs of deleted turns that are not known to be gone; the newest may still be on their way.
SELECT owner, reply_id FROM log_removals
WHERE deleted_at <= moment(:now) - :age_s
ORDER BY deleted_at
LIMIT :rows;

-- name: buried
-- Forgets logs that are gone now.
DELETE FROM log_removals r
USING unnest(CAST(:owners AS TEXT[]), CAST(:reply_ids AS TEXT[])) AS b (owner, reply_id)
WHERE r.owner = b.owner AND r.reply_id = b.reply_id;

-- name: add_prompt
-- A prompt version is stored once.
INSERT INTO prompts (version, text, created_at) VALUES (:version, :text, moment(:now))
ON CONFLICT (version) DO NOTHING;

-- name: prompt
-- The text of a prompt version.
SELECT text FROM prompts WHERE version = :version;
