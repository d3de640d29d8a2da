-- Batches and their lines. A lease is live while it lies after now, store's clock.

-- name: by_key
-- The batch that was made with a key.
SELECT * FROM batches WHERE owner = :owner AND key = :key AND is_deleted = 0;

-- name: active
-- How many batches of an owner have not ended.
SELECT count(*) FROM batches WHERE owner = :owner AND is_over = 0 AND is_deleted = 0;

-- name: add
-- A new batch, due at once.
INSERT INTO batches (
  owner, id, key, body_sha, status, is_over, is_deleted, has_lines, created_at, epoch, lease_until,
  due_at, saved_at, details
) VALUES (
  :owner, :id, :key, :body_sha, :status, :is_over, 0, :has_lines, :created_at, :epoch, NULL,
  :created_at, 0, :details
);

-- name: find
-- A batch of an owner.
SELECT * FROM batches WHERE owner = :owner AND id = :id AND is_deleted = 0;

-- name: page
-- Batches of an owner, the newest first.
SELECT * FROM batches
WHERE owner = :owner AND is_deleted = 0 AND (:after IS NULL OR id < :after)
ORDER BY id DESC
LIMIT :rows;

-- name: cancel
-- The next epoch of a batch that is due at once, whoever has it.
UPDATE batches
SET status = :status, epoch = :epoch, details = :details, lease_until = NULL, due_at = 0,
    saved_at = 0
WHERE owner = :owner AND id = :id;

-- name: delete
-- Takes all batches of an owner out of sight; their keys may be used again.
UPDATE batches SET is_deleted = 1, key = NULL, epoch = epoch + 1 WHERE owner = :owner;

-- name: claim
-- Takes the batch that waits longest, at its next epoch.
UPDATE batches SET epoch = epoch + 1, lease_until = :until
WHERE (owner, id) = (
  SELECT owner, id FROM batches
  WHERE is_over = 0 AND is_deleted = 0 AND due_at <= :now
    AND (lease_until IS NULL OR lease_until <= :now)
  ORDER BY saved_at, id
  LIMIT 1
)
RETURNING *;

-- name: around
-- What goes on beside one batch: lines of others and of its owner's others that have a turn which
-- has not ended, batches in progress, and its owner's.
SELECT
  (
    SELECT count(*)
    FROM batch_lines l JOIN batches b ON b.owner = l.owner AND b.id = l.batch_id
      JOIN turns t ON t.owner = l.owner AND t.key = l.turn_key
    WHERE l.state = 'open' AND t.status IN ('queued', 'running')
      AND b.is_over = 0 AND b.is_deleted = 0
      AND (l.owner <> :owner OR l.batch_id <> :id)
  ) AS open_elsewhere,
  (
    SELECT count(*)
    FROM batch_lines l JOIN batches b ON b.owner = l.owner AND b.id = l.batch_id
      JOIN turns t ON t.owner = l.owner AND t.key = l.turn_key
    WHERE l.owner = :owner AND l.state = 'open' AND t.status IN ('queued', 'running')
      AND b.is_over = 0 AND b.is_deleted = 0
      AND l.batch_id <> :id
  ) AS open_of_owner,
  (
    SELECT count(*) FROM batches
    WHERE is_over = 0 AND is_deleted = 0 AND status = 'in_progress'
  ) AS batches,
  (
    SELECT count(*) FROM batches
    WHERE is_over = 0 AND is_deleted = 0 AND status = 'in_progress' AND owner = :owner
  ) AS of_owner;

-- name: open_lines
-- The open lines of a batch, each with its turn.
SELECT l.*, t.status AS turn_status, t.finish, t.failure, t.input_tokens, t.cached_tokens,
  t.output_tokens
FROM batch_lines l LEFT JOIN turns t ON t.owner = l.owner AND t.key = l.turn_key
WHERE l.owner = :owner AND l.batch_id = :id AND l.state = 'open'
ORDER BY l.n;

-- name: taken
-- Which custom ids a batch has already.
SELECT custom_id FROM batch_lines
WHERE owner = :owner AND batch_id = :id
  AND custom_id IN (SELECT value FROM json_each(:custom_ids));

-- name: lines
-- The next lines after one.
SELECT l.* FROM batch_lines l JOIN batches b ON b.owner = l.owner AND b.id = l.batch_id
WHERE l.owner = :owner AND l.batch_id = :id AND l.n > :after AND b.is_deleted = 0
ORDER BY l.n
LIMIT :rows;

-- name: save
-- All that a step changed of a batch, under its epoch.
UPDATE batches
SET status = :status, is_over = :is_over, has_lines = :has_lines, details = :details,
    lease_until = CASE WHEN :releases THEN NULL ELSE lease_until END,
    due_at = CASE WHEN :releases THEN :due_at ELSE due_at END,
    saved_at = CASE WHEN :releases THEN :now ELSE saved_at END
WHERE owner = :owner AND id = :id AND epoch = :epoch AND is_deleted = 0;

-- name: put_line
-- A new line, or how far one has come.
INSERT INTO batch_lines (
  owner, batch_id, n, number, custom_id, first_byte, size, state, tries, retry_at, error, turn_key
) VALUES (
  :owner, :batch_id, :n, :number, :custom_id, :first_byte, :size, :state, :tries, :retry_at,
  :error, :turn_key
)
ON CONFLICT (owner, batch_id, n) DO UPDATE
SET state = excluded.state, tries = excluded.tries, retry_at = excluded.retry_at,
    error = excluded.error;

-- name: loosen
-- A line's turn, once nobody needs it, is forgotten like any other of no conversation.
UPDATE turns SET kind = 'stateless' WHERE owner = :owner AND key = :turn_key;

-- name: delete_lines
-- Some lines of batches that ended or were deleted, and the keys of their turns.
DELETE FROM batch_lines
WHERE rowid IN (
  SELECT l.rowid
  FROM batches b JOIN batch_lines l ON l.owner = b.owner AND l.batch_id = b.id
  WHERE b.has_lines = 1 AND (b.is_over = 1 OR b.is_deleted = 1)
  ORDER BY b.owner, b.id, l.n
  LIMIT :rows
)
RETURNING owner, turn_key;

-- name: emptied
-- Notes which of those batches have no line left.
UPDATE batches SET has_lines = 0
WHERE has_lines = 1 AND (is_over = 1 OR is_deleted = 1) AND NOT EXISTS (
  SELECT 1 FROM batch_lines l WHERE l.owner = batches.owner AND l.batch_id = batches.id
);

-- name: forget
-- Removes batches without lines that were deleted, or are old.
DELETE FROM batches
WHERE has_lines = 0 AND (is_deleted = 1 OR (is_over = 1 AND created_at <= :old));
