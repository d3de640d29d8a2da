-- Orders to delete: what was to go, what was reached, and when to look again. No words are here.

-- name: order
-- A new order, or the same anew; none of somebody who has left, but for the account's own.
INSERT INTO deletions (owner, target, kind, requested_at, reached, looks, due_at, done_at)
SELECT :owner, :target, :kind, :requested_at, :reached, 0, :requested_at, NULL
WHERE :kind = 'account' OR NOT EXISTS (SELECT 1 FROM departed WHERE id = :owner)
ON CONFLICT (owner, target) DO UPDATE
SET kind = excluded.kind, requested_at = excluded.requested_at, reached = excluded.reached,
    looks = 0, due_at = excluded.due_at, done_at = NULL;

-- name: claim
-- Takes the order that has been due longest, for a while.
UPDATE deletions SET due_at = :until
WHERE (owner, target) = (
  SELECT owner, target FROM deletions
  WHERE done_at IS NULL AND due_at <= :now
  ORDER BY due_at, owner, target
  LIMIT 1
)
RETURNING *;

-- name: save
-- What a look found, unless another look, or the same order anew, came first.
UPDATE deletions
SET reached = :reached, looks = :looks, due_at = :now + :pause_s,
    done_at = CASE WHEN :is_over THEN :now ELSE NULL END
WHERE owner = :owner AND target = :target AND requested_at = :requested_at
  AND looks = :looks - 1 AND done_at IS NULL;

-- name: page
-- Orders before a place, newest first.
SELECT * FROM deletions
WHERE (requested_at, owner, target) < (:requested_at, :owner, :target)
ORDER BY requested_at DESC, owner DESC, target DESC
LIMIT :rows;

-- name: overdue
-- How many orders are not over that are this old.
SELECT count(*) FROM deletions WHERE done_at IS NULL AND requested_at <= :old;

-- name: sweep
-- Removes some orders that have been over for long.
DELETE FROM deletions
WHERE (owner, target) IN (
  SELECT owner, target FROM deletions
  WHERE done_at IS NOT NULL AND done_at <= :old
  ORDER BY done_at, owner, target
  LIMIT :rows
);

-- name: departed
-- The user whose account ends, of whose name a mark is kept.
INSERT INTO departed (id, name_mark, left_at) VALUES (:id, :name_mark, :now);

-- name: delete_user
-- The user with all that he has a name and a password by.
DELETE FROM users WHERE id = :id;

-- name: delete_identities
-- All that a user signs in by at providers.
DELETE FROM identities WHERE user_id = :id;

-- name: delete_sessions
-- Every session of a user.
DELETE FROM sessions WHERE user_id = :id;

-- name: delete_links
-- Every sign-in link of a user.
DELETE FROM links WHERE user_id = :id;

-- name: delete_keys
-- Every key of a user's programs.
DELETE FROM api_keys WHERE owner = :id;

-- name: holds_conversation
-- Whether a conversation is there.
SELECT EXISTS (SELECT 1 FROM conversations WHERE owner = :owner AND id = :target) AS rows;

-- name: holds_of_owner
-- What is there of an owner at all.
SELECT
  EXISTS (SELECT 1 FROM conversations WHERE owner = :owner)
  OR EXISTS (SELECT 1 FROM messages WHERE owner = :owner)
  OR EXISTS (SELECT 1 FROM turns WHERE owner = :owner)
  OR EXISTS (SELECT 1 FROM imports WHERE owner = :owner)
  OR EXISTS (SELECT 1 FROM instructions WHERE owner = :owner AND text <> '') AS rows,
  EXISTS (SELECT 1 FROM batches WHERE owner = :owner)
  OR EXISTS (SELECT 1 FROM batch_lines WHERE owner = :owner) AS batches,
  EXISTS (SELECT 1 FROM files WHERE owner = :owner)
  OR EXISTS (SELECT 1 FROM file_parts WHERE owner = :owner) AS files;

-- name: aged_conversations
-- Conversations that nobody wrote in, or brought along, for longer than their owner's are kept. The
-- list has each of its four parts in the order of time.
SELECT c.owner, c.id
FROM json_each(:kept) k JOIN conversations c INDEXED BY conversations_list
  ON c.owner = k.value ->> 0 AND c.archived IN (0, 1) AND c.pinned IN (0, 1)
  AND c.updated_at <= :now - (k.value ->> 1)
  AND coalesce(c.arrived_at, 0) <= :now - (k.value ->> 1)
ORDER BY c.owner, c.id
LIMIT :rows;
