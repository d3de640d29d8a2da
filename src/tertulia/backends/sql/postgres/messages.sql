-- Messages: a tree for each conversation, in the order of `seq`.

-- name: find
-- One message with its tokens.
SELECT * FROM messages WHERE owner = :owner AND id = :id;

-- name: page
-- The newest messages before another, newest first; a row without a message if there are none, and
-- no row at all if the conversation or the other is not there.
SELECT m.*
FROM conversations c
LEFT JOIN LATERAL (
  SELECT * FROM page_messages
  WHERE owner = :owner AND conversation_id = :conversation_id
    AND seq < coalesce((
      SELECT seq FROM messages
      WHERE owner = :owner AND id = :before AND conversation_id = :conversation_id
    ), 9223372036854775807)
  ORDER BY seq DESC
  LIMIT :rows
) AS m ON TRUE
WHERE c.owner = :owner AND c.id = :conversation_id
  AND (CAST(:before AS TEXT) IS NULL OR EXISTS (
    SELECT 1 FROM messages
    WHERE owner = :owner AND id = :before AND conversation_id = :conversation_id
  ))
ORDER BY m.seq DESC;

-- name: branch
-- A conversation and the path from a leaf (or its head) up to its root, without texts but for that
-- of a user's leaf, in one row.
WITH RECURSIVE place AS (
  SELECT prompt_version, instructions, model, titled_by,
    CASE WHEN :to_head THEN head_message_id ELSE :leaf END AS leaf
  FROM conversations
  WHERE owner = :owner AND id = :conversation_id
), path (depth, id, parent_id, role, status, tokens, tokenizer) AS (
  SELECT 0, m.id, m.parent_id, m.role, m.status, m.tokens, m.tokenizer
  FROM place JOIN messages m
    ON m.owner = :owner AND m.id = place.leaf AND m.conversation_id = :conversation_id
  UNION ALL
  SELECT path.depth + 1, m.id, m.parent_id, m.role, m.status, m.tokens, m.tokenizer
  FROM path JOIN messages m
    ON m.owner = :owner AND m.id = path.parent_id AND m.conversation_id = :conversation_id
)
SELECT prompt_version, instructions, model, titled_by, leaf, (
    SELECT json_agg(json_build_array(id, role, status, tokens, tokenizer) ORDER BY depth DESC)
    FROM path
  ) AS path, (
    SELECT content FROM messages m
    WHERE m.owner = :owner AND m.id = place.leaf AND m.conversation_id = :conversation_id
      AND m.role = 'user'
  ) AS said
FROM place;

-- name: texts
-- What a prompt needs of some messages.
SELECT id, role, content, ids, tokenizer FROM messages
WHERE owner = :owner AND id = ANY (:ids);

-- name: rate
-- A rating of a reply.
UPDATE messages SET feedback = :rating, feedback_why = :why
WHERE owner = :owner AND id = :id AND role = 'assistant'
RETURNING *;
