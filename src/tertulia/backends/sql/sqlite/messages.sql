-- Messages: a tree for each conversation, in the order of `seq`.

-- name: find
-- One message with its tokens.
SELECT * FROM messages WHERE owner = :owner AND id = :id;

-- name: place
-- Where a message stands in its tree.
SELECT id, role, conversation_id, parent_id FROM messages WHERE owner = :owner AND id = :id;

-- name: page
-- The newest messages before a number, newest first.
SELECT * FROM page_messages
WHERE owner = :owner AND conversation_id = :conversation_id AND seq < :before
ORDER BY seq DESC
LIMIT :rows;

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
    SELECT json_group_array(json_array(id, role, status, tokens, tokenizer))
    FROM (SELECT * FROM path ORDER BY depth DESC)
  ) AS path, (
    SELECT content FROM messages m
    WHERE m.owner = :owner AND m.id = place.leaf AND m.conversation_id = :conversation_id
      AND m.role = 'user'
  ) AS said
FROM place;

-- name: texts
-- What a prompt needs of some messages.
SELECT id, role, content, ids, tokenizer FROM messages
WHERE owner = :owner AND id IN (SELECT value FROM json_each(:ids));

-- name: add
-- A new message.
INSERT INTO messages (
  owner, conversation_id, seq, id, parent_id, shown, role, content, tokens, tokenizer, status,
  created_at, model, requested, reason, finish, notices, failure, feedback, last_event_id, ids,
  bits_0, bits_1, bits_2, bits_3, bits_4, bits_5, bits_6, bits_7, bits_8, bits_9, bits_10, bits_11,
  bits_12, bits_13, bits_14, bits_15
) VALUES (
  :owner, :conversation_id, :seq, :id, :parent_id, :shown, :role, :content, :tokens, :tokenizer,
  :status, :created_at, :model, :requested, :reason, :finish, :notices, :failure, :feedback,
  :last_event_id, :ids,
  :bits_0, :bits_1, :bits_2, :bits_3, :bits_4, :bits_5, :bits_6, :bits_7, :bits_8, :bits_9,
  :bits_10, :bits_11, :bits_12, :bits_13, :bits_14, :bits_15
);

-- name: note
-- What is shown of who answers.
UPDATE messages SET model = :model, reason = :reason, notices = :notices
WHERE owner = :owner AND id = :reply_id;

-- name: rewrite
-- What a turn changes of its reply.
UPDATE messages SET
  content = :content, tokens = :tokens, tokenizer = :tokenizer, status = :status, model = :model,
  requested = :requested, reason = :reason, finish = :finish, notices = :notices,
  failure = :failure, last_event_id = :last_event_id, ids = :ids,
  bits_0 = :bits_0, bits_1 = :bits_1, bits_2 = :bits_2, bits_3 = :bits_3, bits_4 = :bits_4,
  bits_5 = :bits_5, bits_6 = :bits_6, bits_7 = :bits_7, bits_8 = :bits_8, bits_9 = :bits_9,
  bits_10 = :bits_10, bits_11 = :bits_11, bits_12 = :bits_12, bits_13 = :bits_13,
  bits_14 = :bits_14, bits_15 = :bits_15
WHERE owner = :owner AND id = :id;

-- name: rate
-- A rating of a reply.
UPDATE messages SET feedback = :rating, feedback_why = :why
WHERE owner = :owner AND id = :id AND role = 'assistant';
