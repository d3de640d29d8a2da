-- Messages: a tree for each conversation, in the order of `seq`.

-- name: find
-- One message with its tokens.
SELECT * FROM messages WHERE owner = :owner AND id = :id;

-- name: last_seq
-- The number of the newest message of a conversation.
SELECT coalesce(max(seq), 0) FROM messages
WHERE owner = :owner AND conversation_id = :conversation_id;

-- name: page
-- The newest messages before a number, newest first, without tokens.
SELECT owner, conversation_id, seq, id, parent_id, role, content, tokens, tokenizer, status,
       created_at, model, requested, reason, finish, notices, failure, feedback, last_event_id,
       NULL AS ids
FROM messages
WHERE owner = :owner AND conversation_id = :conversation_id AND seq < :before
ORDER BY seq DESC
LIMIT :rows;

-- name: branch
-- From a leaf up to the root, without texts.
WITH RECURSIVE path (depth, id, parent_id, role, status, tokens, tokenizer) AS (
  SELECT 0, id, parent_id, role, status, tokens, tokenizer FROM messages
  WHERE owner = :owner AND id = :leaf AND conversation_id = :conversation_id
  UNION ALL
  SELECT path.depth + 1, m.id, m.parent_id, m.role, m.status, m.tokens, m.tokenizer
  FROM path JOIN messages m
    ON m.owner = :owner AND m.id = path.parent_id AND m.conversation_id = :conversation_id
)
SELECT id, role, status, tokens, tokenizer FROM path ORDER BY depth DESC;

-- name: texts
-- What a prompt needs of some messages.
SELECT id, role, content, ids, tokenizer FROM messages
WHERE owner = :owner AND id IN (SELECT value FROM json_each(:ids));

-- name: add
-- A new message.
INSERT INTO messages (
  owner, conversation_id, seq, id, parent_id, role, content, tokens, tokenizer, status, created_at,
  model, requested, reason, finish, notices, failure, feedback, last_event_id, ids
) VALUES (
  :owner, :conversation_id, :seq, :id, :parent_id, :role, :content, :tokens, :tokenizer, :status,
  :created_at, :model, :requested, :reason, :finish, :notices, :failure, :feedback,
  :last_event_id, :ids
);

-- name: rewrite
-- What a turn changes of its reply.
UPDATE messages SET
  content = :content, tokens = :tokens, tokenizer = :tokenizer, status = :status, model = :model,
  requested = :requested, reason = :reason, finish = :finish, notices = :notices,
  failure = :failure, last_event_id = :last_event_id, ids = :ids
WHERE owner = :owner AND id = :id;

-- name: rate
-- A rating of a reply.
UPDATE messages SET feedback = :rating, feedback_why = :why
WHERE owner = :owner AND id = :id AND role = 'assistant';
