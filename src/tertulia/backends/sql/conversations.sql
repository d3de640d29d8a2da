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
-- A new conversation.
INSERT INTO conversations (owner, id, key, title, prompt_version, created_at, updated_at)
VALUES (:owner, :id, :key, '', :prompt_version, :now, :now);

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

-- name: search
-- The same, of those whose title or messages hold a word in any case.
SELECT c.*, (
    SELECT t.reply_id FROM turns t
    WHERE t.owner = c.owner AND t.conversation_id = c.id AND t.status IN ('queued', 'running')
    ORDER BY t.created_at DESC, t.reply_id DESC LIMIT 1
  ) AS active
FROM conversations c
WHERE c.owner = :owner AND c.archived = :archived
  AND (c.pinned, c.updated_at, c.id) < (:pinned, :updated_at, :after)
  AND (
    holds(c.title, :word)
    OR EXISTS (
      SELECT 1 FROM messages m
      WHERE m.owner = c.owner AND m.conversation_id = c.id AND holds(m.content, :word)
    )
  )
ORDER BY c.pinned DESC, c.updated_at DESC, c.id DESC
LIMIT :rows;

-- name: change
-- The fields that a person may change.
UPDATE conversations
SET title = :title, pinned = :pinned, archived = :archived
WHERE owner = :owner AND id = :id;

-- name: move_head
-- A new reply is the head; a conversation without a title takes this one.
UPDATE conversations
SET head_message_id = :reply_id, updated_at = :now,
    title = CASE WHEN title = '' THEN :title ELSE title END
WHERE owner = :owner AND id = :id;

-- name: pin_model
-- Where the conversation stays once it has been answered.
UPDATE conversations SET model = :model WHERE owner = :owner AND id = :id;

-- name: turns_of
-- All turns of a conversation, or of none, oldest first.
SELECT * FROM whole_turns
WHERE owner = :owner AND conversation_id IS :id
ORDER BY created_at, reply_id;

-- name: delete_turns
-- Removes the turns of a conversation, or of none.
DELETE FROM turns WHERE owner = :owner AND conversation_id IS :id;

-- name: delete
-- Removes a conversation; its messages go with it.
DELETE FROM conversations WHERE owner = :owner AND id = :id;

-- name: add_prompt
-- A prompt version is stored once.
INSERT INTO prompts (version, text) VALUES (:version, :text) ON CONFLICT (version) DO NOTHING;

-- name: prompt
-- The text of a prompt version.
SELECT text FROM prompts WHERE version = :version;
