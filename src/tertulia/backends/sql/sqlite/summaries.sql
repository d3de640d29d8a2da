-- What the branches of a conversation came to, each up to a message.

-- name: latest
-- The summary that ends at the last of these messages that has one.
SELECT s.* FROM json_each(:upto) AS named JOIN summaries s
  ON s.owner = :owner AND s.conversation_id = :conversation_id AND s.upto = named.value
ORDER BY named.key DESC
LIMIT 1;

-- name: find
-- One summary by its id.
SELECT * FROM summaries
WHERE owner = :owner AND conversation_id = :conversation_id AND id = :id;

-- name: put
-- A summary, in the place of one that ends at the same message.
INSERT INTO summaries (
  owner, conversation_id, upto, id, previous_id, text, tokens, tokenizer, model, version,
  created_at
) VALUES (
  :owner, :conversation_id, :upto, :id, :previous_id, :text, :tokens, :tokenizer, :model, :version,
  :now
)
ON CONFLICT (owner, conversation_id, upto) DO UPDATE SET
  id = excluded.id, previous_id = excluded.previous_id, text = excluded.text,
  tokens = excluded.tokens, tokenizer = excluded.tokenizer, model = excluded.model,
  version = excluded.version, created_at = excluded.created_at;
