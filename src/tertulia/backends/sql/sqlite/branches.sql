-- Branches: which leaf of a tree is shown, and what hangs below a message.

-- name: place
-- Where a message hangs, and what its conversation says of itself.
SELECT m.conversation_id, m.parent_id, c.head_message_id, c.title, c.titled_by
FROM messages m JOIN conversations c ON c.owner = m.owner AND c.id = m.conversation_id
WHERE m.owner = :owner AND m.id = :id;

-- name: path
-- The newest messages of the branch that ends with a leaf, newest first.
WITH RECURSIVE path (depth, seq, parent_id) AS (
  SELECT 1, m.seq, m.parent_id FROM messages m
  WHERE m.owner = :owner AND m.id = :leaf AND m.conversation_id = :conversation_id
  UNION ALL
  SELECT path.depth + 1, m.seq, m.parent_id
  FROM path JOIN messages m
    ON m.owner = :owner AND m.id = path.parent_id AND m.conversation_id = :conversation_id
  WHERE path.depth < :rows
)
SELECT p.* FROM path JOIN page_messages p
  ON p.owner = :owner AND p.conversation_id = :conversation_id AND p.seq = path.seq
ORDER BY path.depth;

-- name: leaf_below
-- Of the leaves at or below a message the one that was shown last, or else the newest.
WITH RECURSIVE below (id, shown, seq) AS (
  SELECT m.id, m.shown, m.seq FROM messages m
  WHERE m.owner = :owner AND m.id = :id AND m.conversation_id = :conversation_id
  UNION ALL
  SELECT m.id, m.shown, m.seq
  FROM below JOIN messages m
    ON m.owner = :owner AND m.conversation_id = :conversation_id AND m.parent_id = below.id
)
SELECT below.id FROM below
WHERE NOT EXISTS (
  SELECT 1 FROM messages m
  WHERE m.owner = :owner AND m.conversation_id = :conversation_id AND m.parent_id = below.id
)
ORDER BY below.shown DESC, below.seq DESC
LIMIT 1;

-- name: leaf
-- The same of a whole tree.
SELECT l.id FROM messages l
WHERE l.owner = :owner AND l.conversation_id = :conversation_id
  AND NOT EXISTS (
    SELECT 1 FROM messages m
    WHERE m.owner = :owner AND m.conversation_id = :conversation_id AND m.parent_id = l.id
  )
ORDER BY l.shown DESC, l.seq DESC
LIMIT 1;

-- name: move
-- Another leaf is shown, or none.
UPDATE conversations SET head_message_id = :leaf, moves = moves + 1
WHERE owner = :owner AND id = :conversation_id;

-- name: mark
-- Notes on a message that it was shown last.
UPDATE messages SET shown = (
  SELECT c.moves FROM conversations c WHERE c.owner = :owner AND c.id = :conversation_id
)
WHERE owner = :owner AND id = :leaf;

-- name: below
-- A message and all below it.
WITH RECURSIVE below (id, conversation_id) AS (
  SELECT m.id, m.conversation_id FROM messages m WHERE m.owner = :owner AND m.id = :id
  UNION ALL
  SELECT m.id, m.conversation_id
  FROM below JOIN messages m
    ON m.owner = :owner AND m.conversation_id = below.conversation_id AND m.parent_id = below.id
)
SELECT id FROM below;

-- name: asked
-- What was asked in some messages.
SELECT content FROM messages
WHERE owner = :owner AND id IN (SELECT value FROM json_each(:ids)) AND role = 'user';

-- name: answered_above
-- Whether a question was answered above a message, by whose parent it is asked.
WITH RECURSIVE above (parent_id, is_answer) AS (
  SELECT m.parent_id, m.role = 'assistant' AND m.status IN ('completed', 'stopped') AND m.tokens > 0
  FROM messages m
  WHERE m.owner = :owner AND m.id = :parent_id
  UNION ALL
  SELECT m.parent_id, m.role = 'assistant' AND m.status IN ('completed', 'stopped') AND m.tokens > 0
  FROM above JOIN messages m ON m.owner = :owner AND m.id = above.parent_id
)
SELECT 1 AS yes FROM above WHERE is_answer LIMIT 1;

-- name: turns_of
-- The turns of some replies, oldest first.
SELECT * FROM whole_turns
WHERE +owner = :owner AND reply_id IN (SELECT value FROM json_each(:ids))
ORDER BY created_at, reply_id;

-- name: mark_deleted
-- Keeps a mark of a deleted message's key.
INSERT INTO deleted_keys (owner, conversation_id, key_mark)
VALUES (:owner, :conversation_id, :key_mark)
ON CONFLICT DO NOTHING;

-- name: delete_turns
-- Removes the turns of some replies.
DELETE FROM turns WHERE +owner = :owner AND reply_id IN (SELECT value FROM json_each(:ids));

-- name: delete
-- Removes messages.
DELETE FROM messages WHERE owner = :owner AND id IN (SELECT value FROM json_each(:ids));

-- name: delete_summaries
-- Removes what branches came to up to some messages.
DELETE FROM summaries
WHERE owner = :owner AND conversation_id = :conversation_id
  AND upto IN (SELECT value FROM json_each(:ids));

-- name: delete_tasks
-- Removes what was to be made of them.
DELETE FROM tasks
WHERE owner = :owner AND conversation_id = :conversation_id
  AND upto IN (SELECT value FROM json_each(:ids));

-- name: untitle
-- Empties a title.
UPDATE conversations SET title = '', titled_by = 'words' WHERE owner = :owner AND id = :conversation_id;
