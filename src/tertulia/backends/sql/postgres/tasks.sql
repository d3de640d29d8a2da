-- What is to be made of conversations when nobody else needs the models. Whoever writes first locks
-- the conversation: it is not deleted meanwhile, and one that is deleted is found no more.

-- name: want
-- A task, once. A conversation whose title is no longer its first words needs no other.
WITH place AS (
  SELECT owner, id FROM conversations
  WHERE owner = :owner AND id = :conversation_id AND (:kind <> 'title' OR titled_by = 'words')
  FOR KEY SHARE
)
INSERT INTO tasks (
  owner, conversation_id, kind, upto, room_tokens, tries, epoch, due_at, created_at
)
SELECT owner, id, :kind, :upto, :room_tokens, 0, 0, moment(:now), moment(:now)
FROM place
ON CONFLICT DO NOTHING
RETURNING owner;

-- name: claim
-- Takes the task that is due longest, as one try more; it is due again when the lease ends.
WITH next AS (
  SELECT owner, conversation_id, kind, upto FROM tasks
  WHERE due_at <= moment(:now) AND tries < :tries
  ORDER BY due_at, owner, conversation_id, kind, upto
  LIMIT 1
  FOR UPDATE SKIP LOCKED
)
UPDATE tasks t
SET epoch = t.epoch + 1, tries = t.tries + 1, due_at = moment(:now) + :lease_s
FROM next
WHERE t.owner = next.owner AND t.conversation_id = next.conversation_id AND t.kind = next.kind
  AND t.upto = next.upto
RETURNING t.owner, t.conversation_id, t.kind, t.upto, t.room_tokens, t.tries, t.epoch;

-- name: put_off
-- When a task that is still held is due; null gives it up.
UPDATE tasks SET due_at = moment(:now) + CAST(:due_in_s AS DOUBLE PRECISION)
WHERE owner = :owner AND conversation_id = :conversation_id AND kind = :kind AND upto = :upto
  AND epoch = :epoch
RETURNING owner;

-- name: title
-- A task that is still held goes, and a model's title takes the place of the first words.
WITH place AS (
  SELECT owner, id FROM conversations WHERE owner = :owner AND id = :conversation_id FOR UPDATE
), done AS (
  DELETE FROM tasks t USING place
  WHERE t.owner = place.owner AND t.conversation_id = place.id AND t.kind = :kind
    AND t.upto = :upto AND t.epoch = :epoch
  RETURNING t.owner
), titled AS (
  UPDATE conversations c SET title = :title, folded = :folded, titled_by = 'model'
  FROM done
  WHERE c.owner = :owner AND c.id = :conversation_id AND c.titled_by = 'words'
)
SELECT owner FROM done;

-- name: summary
-- A task that is still held goes, and its summary comes, in the place of one that ends there.
WITH place AS (
  SELECT owner, id FROM conversations WHERE owner = :owner AND id = :conversation_id FOR KEY SHARE
), done AS (
  DELETE FROM tasks t USING place
  WHERE t.owner = place.owner AND t.conversation_id = place.id AND t.kind = :kind
    AND t.upto = :upto AND t.epoch = :epoch
  RETURNING t.owner
), made AS (
  INSERT INTO summaries (
    owner, conversation_id, upto, id, previous_id, text, tokens, tokenizer, model, version,
    created_at
  )
  SELECT owner, :conversation_id, :upto, :id, :previous_id, :text, :tokens, :tokenizer, :model,
    :version, moment(:now)
  FROM done
  ON CONFLICT (owner, conversation_id, upto) DO UPDATE SET
    id = excluded.id, previous_id = excluded.previous_id, text = excluded.text,
    tokens = excluded.tokens, tokenizer = excluded.tokenizer, model = excluded.model,
    version = excluded.version, created_at = excluded.created_at
)
SELECT owner FROM done;
