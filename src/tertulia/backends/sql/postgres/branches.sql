-- Branches: which leaf of a tree is shown, and what hangs below a message.

-- name: start
-- Where a page of a branch begins: the message before `before`, or where the branch through another
-- was last at, or the head; no row if one that is named is not in the conversation.
SELECT CASE
    WHEN CAST(:before AS TEXT) IS NOT NULL THEN b.parent_id
    WHEN CAST(:through AS TEXT) IS NOT NULL THEN leaf_below(:owner, :conversation_id, :through)
    ELSE c.head_message_id
  END AS leaf
FROM conversations c
LEFT JOIN messages b
  ON b.owner = :owner AND b.id = :before AND b.conversation_id = :conversation_id
WHERE c.owner = :owner AND c.id = :conversation_id
  AND (CAST(:before AS TEXT) IS NULL OR b.id IS NOT NULL)
  AND (CAST(:through AS TEXT) IS NULL OR EXISTS (
    SELECT 1 FROM messages
    WHERE owner = :owner AND id = :through AND conversation_id = :conversation_id
  ));

-- name: path
-- The newest messages of the branch that ends with a leaf, newest first. Each is looked up by its
-- key: the limits keep the planner from reading all that the owner has, once for each.
WITH RECURSIVE path (depth, seq, parent_id) AS (
  SELECT 1, m.seq, m.parent_id FROM messages m
  WHERE m.owner = :owner AND m.id = :leaf AND m.conversation_id = :conversation_id
  UNION ALL
  SELECT path.depth + 1, m.seq, m.parent_id
  FROM path, LATERAL (
    SELECT seq, parent_id FROM messages
    WHERE owner = :owner AND id = path.parent_id AND conversation_id = :conversation_id
    LIMIT 1
  ) AS m
  WHERE path.depth < :rows
)
SELECT p.* FROM path, LATERAL (
  SELECT * FROM page_messages
  WHERE owner = :owner AND conversation_id = :conversation_id AND seq = path.seq
  LIMIT 1
) AS p
ORDER BY path.depth;

-- name: switch
-- Shows the branch of a message, at the leaf where it was last; no row if it is not there, or if its
-- leaf is being deleted. The leaf is written first and then the conversation, as whoever notes a
-- model does it: nobody waits for another in a circle.
WITH marked AS (
  UPDATE messages m SET shown = (
    SELECT c.moves + 1 FROM conversations c WHERE c.owner = :owner AND c.id = :conversation_id
  )
  WHERE m.owner = :owner AND m.id = leaf_below(:owner, :conversation_id, :id)
  RETURNING m.id
), moved AS (
  UPDATE conversations c SET head_message_id = marked.id, moves = c.moves + 1
  FROM marked
  WHERE c.owner = :owner AND c.id = :conversation_id
  RETURNING c.*
)
SELECT c.*, (
    SELECT o.reply_id FROM open_turns o
    WHERE o.owner = c.owner AND o.conversation_id = c.id
    ORDER BY o.created_at DESC, o.reply_id DESC LIMIT 1
  ) AS active
FROM moved c;

-- name: place
-- Where a message hangs.
SELECT conversation_id, parent_id FROM messages
WHERE owner = :owner AND id = :id;

-- name: below
-- A message and all below it. The offset keeps each step a look into an index, as in `path`.
WITH RECURSIVE below (id, conversation_id) AS (
  SELECT m.id, m.conversation_id FROM messages m WHERE m.owner = :owner AND m.id = :id
  UNION ALL
  SELECT m.id, m.conversation_id
  FROM below, LATERAL (
    SELECT id, conversation_id FROM messages
    WHERE owner = :owner AND conversation_id = below.conversation_id
      AND coalesce(parent_id, '') = below.id
    OFFSET 0
  ) AS m
)
SELECT id FROM below;

-- name: asked
-- What was asked in some messages.
SELECT content FROM messages
WHERE owner = :owner AND id = ANY (:ids) AND role = 'user';

-- name: answered_above
-- Whether a question was answered above a message, by whose parent it is asked.
WITH RECURSIVE above (parent_id, is_answer) AS (
  SELECT m.parent_id, m.role = 'assistant' AND m.status IN ('completed', 'stopped') AND m.tokens > 0
  FROM messages m
  WHERE m.owner = :owner AND m.id = :parent_id
  UNION ALL
  SELECT m.parent_id, m.role = 'assistant' AND m.status IN ('completed', 'stopped') AND m.tokens > 0
  FROM above, LATERAL (
    SELECT * FROM messages WHERE owner = :owner AND id = above.parent_id LIMIT 1
  ) AS m
)
SELECT 1 AS yes FROM above WHERE is_answer LIMIT 1;

-- name: open
-- Which of some replies are open, oldest first.
SELECT reply_id FROM open_turns
WHERE owner = :owner AND reply_id = ANY (:ids)
ORDER BY created_at, reply_id;

-- name: held
-- The open ones among some replies, which nobody else ends until the transaction does: whoever ends
-- one at the same moment ends it before or finds it gone. Locked in the order of all.
SELECT o.reply_id, o.created_at, o.epoch, o.reserved, o.answer_tokens, o.budgets, o.lane, t.plan,
  t.model
FROM open_turns o JOIN turns t ON t.owner = o.owner AND t.reply_id = o.reply_id
WHERE o.owner = :owner AND o.reply_id = ANY (:ids)
ORDER BY o.reply_id
FOR UPDATE OF o;

-- name: delete
-- Removes messages with their turns and whatever was made of them (all that else holds their words
-- goes here), and keeps the ids of their logs for burial and marks of their keys.
WITH running AS (
  DELETE FROM open_turns WHERE owner = :owner AND reply_id = ANY (:ids)
  RETURNING reply_id, created_at, lane, cost, epoch
), tagged AS (
  UPDATE tags SET tag = tags.tag - unused.cost
  FROM (
    SELECT lane, CAST(sum(cost) AS BIGINT) AS cost FROM running WHERE epoch = 0 GROUP BY lane
  ) AS unused
  WHERE tags.owner = :owner AND tags.lane = unused.lane
), gone AS (
  DELETE FROM turns WHERE owner = :owner AND reply_id = ANY (:ids)
  RETURNING owner, reply_id, key
), logged AS (
  INSERT INTO log_removals (owner, reply_id, deleted_at)
  SELECT owner, reply_id, moment(:now) FROM gone
  ON CONFLICT (owner, reply_id) DO NOTHING
), marked AS (
  INSERT INTO deleted_keys (owner, conversation_id, key_mark)
  SELECT owner, :conversation_id, encode(sha256(convert_to(key, 'UTF8')), 'hex') FROM gone
  ON CONFLICT (owner, conversation_id, key_mark) DO NOTHING
), said AS (
  DELETE FROM messages WHERE owner = :owner AND id = ANY (:ids)
), unshared AS (
  DELETE FROM shares WHERE owner = :owner AND leaf_id = ANY (:ids)
), summed_up AS (
  DELETE FROM summaries
  WHERE owner = :owner AND conversation_id = :conversation_id AND upto = ANY (:ids)
), wanted AS (
  DELETE FROM tasks
  WHERE owner = :owner AND conversation_id = :conversation_id AND upto = ANY (:ids)
)
SELECT ARRAY(SELECT reply_id FROM running ORDER BY created_at, reply_id) AS running,
  ARRAY(SELECT reply_id FROM gone) AS gone;

-- name: told
-- What a conversation says of its messages.
SELECT head_message_id, title, titled_by FROM conversations
WHERE owner = :owner AND id = :conversation_id;

-- name: mend
-- Shows another leaf, once the head is gone: where the branch of a message was last at, or the whole
-- tree without one. Written in the order of `switch`.
WITH marked AS (
  UPDATE messages m SET shown = (
    SELECT c.moves + 1 FROM conversations c WHERE c.owner = :owner AND c.id = :conversation_id
  )
  WHERE m.owner = :owner AND m.id = CASE
    WHEN CAST(:parent_id AS TEXT) IS NULL THEN leaf_of(:owner, :conversation_id)
    ELSE leaf_below(:owner, :conversation_id, :parent_id)
  END
  RETURNING m.id
)
UPDATE conversations
SET head_message_id = (SELECT id FROM marked), moves = moves + 1
WHERE owner = :owner AND id = :conversation_id;

-- name: untitle
-- Empties a title.
UPDATE conversations SET title = '', folded = '', titled_by = 'words'
WHERE owner = :owner AND id = :conversation_id;
