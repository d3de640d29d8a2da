-- What the branches of a conversation came to, each up to a message.

-- name: latest
-- The summary that ends at the last of these messages that has one.
SELECT s.*
FROM unnest(CAST(:upto AS TEXT[])) WITH ORDINALITY AS named (upto, place)
  JOIN summaries s
    ON s.owner = :owner AND s.conversation_id = :conversation_id AND s.upto = named.upto
ORDER BY named.place DESC
LIMIT 1;

-- name: find
-- One summary by its id.
SELECT * FROM summaries
WHERE owner = :owner AND conversation_id = :conversation_id AND id = :id;
