-- Conversations of one owner. `active` is the newest open turn's reply.

-- name: by_key
-- The conversation that was made with a key.
SELECT id FROM conversations WHERE owner = :owner AND key = :key;

-- name: get
-- One conversation with its reply in progress.
SELECT c.*, (
    SELECT t.reply_id FROM turns t
    WHERE t.owner = c.owner AND t.conversation_id = c.id AND t.status IN ('queued', 'running')
    ORDER BY t.created_at DESC, t.reply_id DESC LIMIT 1
  ) AS active
FROM conversations c
WHERE c.owner = :owner AND c.id = :id;

-- name: add
-- A new conversation, with the instructions that its owner has now.
INSERT INTO conversations (
  owner, id, key, title, prompt_version, instructions, created_at, updated_at
)
SELECT :owner, :id, :key, '', :prompt_version, coalesce((
    SELECT version FROM instructions WHERE owner = :owner AND text <> ''
    ORDER BY version DESC LIMIT 1
  ), 0), :now, :now;

-- name: page
-- Conversations after a place, pinned first, then newest; a place of 2 is before all.
SELECT c.*, (
    SELECT t.reply_id FROM turns t
    WHERE t.owner = c.owner AND t.conversation_id = c.id AND t.status IN ('queued', 'running')
    ORDER BY t.created_at DESC, t.reply_id DESC LIMIT 1
  ) AS active
FROM conversations c
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
LIMIT 2 OFFSET :looked - 1;

-- name: search
-- The same as a page, down to a place, of those whose title holds a word in any case, or a message,
-- with the text of the newest such one. Signatures are compared first, and no text of a title with
-- plain letters alone is given to `holds`: that one takes turns with all else in this process.
SELECT * FROM (
  SELECT c.*, (
      SELECT t.reply_id FROM turns t
      WHERE t.owner = c.owner AND t.conversation_id = c.id AND t.status IN ('queued', 'running')
      ORDER BY t.created_at DESC, t.reply_id DESC LIMIT 1
    ) AS active,
    CASE WHEN instr(lower(c.title), :word) > 0
      OR (c.title GLOB '*[^ -~]*' AND holds(c.title, :word))
    THEN '' ELSE (
      SELECT m.content FROM messages m INDEXED BY messages_signature
      WHERE m.owner = c.owner AND m.conversation_id = c.id AND m.seq > 0
        AND (m.bits_0 & :bits_0) = :bits_0 AND (m.bits_1 & :bits_1) = :bits_1
        AND (m.bits_2 & :bits_2) = :bits_2 AND (m.bits_3 & :bits_3) = :bits_3
        AND (m.bits_4 & :bits_4) = :bits_4 AND (m.bits_5 & :bits_5) = :bits_5
        AND (m.bits_6 & :bits_6) = :bits_6 AND (m.bits_7 & :bits_7) = :bits_7
        AND (m.bits_8 & :bits_8) = :bits_8 AND (m.bits_9 & :bits_9) = :bits_9
        AND (m.bits_10 & :bits_10) = :bits_10 AND (m.bits_11 & :bits_11) = :bits_11
        AND (m.bits_12 & :bits_12) = :bits_12 AND (m.bits_13 & :bits_13) = :bits_13
        AND (m.bits_14 & :bits_14) = :bits_14 AND (m.bits_15 & :bits_15) = :bits_15
        AND holds(m.content, :word)
      ORDER BY m.seq DESC LIMIT 1
    ) END AS said
  FROM conversations c
  WHERE c.owner = :owner AND c.archived = :archived
    AND (c.pinned, c.updated_at, c.id) < (:pinned, :updated_at, :after)
    AND (c.pinned, c.updated_at, c.id) >= (:last_pinned, :last_updated_at, :last)
)
WHERE said IS NOT NULL
ORDER BY pinned DESC, updated_at DESC, id DESC
LIMIT :rows;

-- name: change
-- The fields that a person may change.
UPDATE conversations
SET title = :title, titled_by = :titled_by, pinned = :pinned, archived = :archived
WHERE owner = :owner AND id = :id;

-- name: move_head
-- A new reply is the head; a conversation without a title takes this one.
UPDATE conversations
SET head_message_id = :reply_id, updated_at = :now, moves = moves + 1,
    title = CASE WHEN title = '' THEN :title ELSE title END
WHERE owner = :owner AND id = :id;

-- name: pin_model
-- Where the conversation stays once it has been answered.
UPDATE conversations SET model = :model WHERE owner = :owner AND id = :id;

-- name: aged
-- A conversation that nobody wrote in, or brought along, since a time, or whenever that was.
SELECT 1 FROM conversations
WHERE owner = :owner AND id = :id AND (:until IS NULL OR max(updated_at, coalesce(arrived_at, 0)) <= :until);

-- name: turns_of
-- All turns of a conversation, oldest first: those of its replies.
SELECT * FROM whole_turns
WHERE +owner = :owner AND reply_id IN (
  SELECT id FROM messages
  WHERE owner = :owner AND conversation_id = :id AND role = 'assistant'
)
ORDER BY created_at, reply_id;

-- name: delete_turns
-- Removes those turns; their messages must be there still.
DELETE FROM turns
WHERE +owner = :owner AND reply_id IN (
  SELECT id FROM messages
  WHERE owner = :owner AND conversation_id = :id AND role = 'assistant'
);

-- name: loose_turns_of
-- All turns of an owner that belong to no conversation, oldest first.
SELECT * FROM whole_turns
WHERE owner = :owner AND thread > ''
ORDER BY created_at, reply_id;

-- name: delete_loose_turns
-- Removes those turns.
DELETE FROM turns WHERE owner = :owner AND thread > '';

-- name: delete
-- Removes a conversation; its messages go with it.
DELETE FROM conversations WHERE owner = :owner AND id = :id;

-- name: add_prompt
-- A prompt version is stored once.
INSERT INTO prompts (version, text, created_at) VALUES (:version, :text, :now)
ON CONFLICT (version) DO NOTHING;

-- name: prompt
-- The text of a prompt version.
SELECT text FROM prompts WHERE version = :version;
