-- What is to be made of conversations when nobody else needs the models.

-- name: want
-- A task, once. A conversation whose title is no longer its first words needs no other.
INSERT INTO tasks (
  owner, conversation_id, kind, upto, room_tokens, tries, epoch, due_at, created_at
)
SELECT :owner, :conversation_id, :kind, :upto, :room_tokens, 0, 0, :now, :now
FROM conversations
WHERE owner = :owner AND id = :conversation_id AND (:kind <> 'title' OR titled_by = 'words')
ON CONFLICT DO NOTHING;

-- name: claim
-- Takes the task that is due longest, as one try more; it is due again when the lease ends.
UPDATE tasks SET epoch = epoch + 1, tries = tries + 1, due_at = :until
WHERE (owner, conversation_id, kind, upto) = (
  SELECT owner, conversation_id, kind, upto FROM tasks
  WHERE due_at <= :now AND tries < :tries
  ORDER BY due_at, owner, conversation_id, kind, upto LIMIT 1
)
RETURNING owner, conversation_id, kind, upto, room_tokens, tries, epoch;

-- name: put_off
-- When a task that is still held is due; null gives it up.
UPDATE tasks SET due_at = :due_at
WHERE owner = :owner AND conversation_id = :conversation_id AND kind = :kind AND upto = :upto
  AND epoch = :epoch;

-- name: take_away
-- A task that is still held goes.
DELETE FROM tasks
WHERE owner = :owner AND conversation_id = :conversation_id AND kind = :kind AND upto = :upto
  AND epoch = :epoch;

-- name: title
-- A model's title in the place of the first words.
UPDATE conversations SET title = :title, titled_by = 'model'
WHERE owner = :owner AND id = :conversation_id AND titled_by = 'words';
