-- Batches and their lines. A lease is live while it lies after now, store's clock.

-- name: by_key
-- The batch that was made with a key.
SELECT * FROM batches WHERE owner = :owner AND key = :key AND NOT is_deleted;

-- name: active
-- How many batches of an owner have not ended, and what time it is.
SELECT moment(:now) AS now, (
  SELECT count(*) FROM batches WHERE owner = :owner AND NOT is_over AND NOT is_deleted
) AS batches;

-- name: add
-- A new batch, due at once.
INSERT INTO batches (
  owner, id, key, body_sha, status, is_over, is_deleted, has_lines, created_at, epoch, lease_until,
  due_at, saved_at, details
) VALUES (
  :owner, :id, :key, :body_sha, :status, :is_over, FALSE, :has_lines, :created_at, :epoch, NULL,
  :created_at, 0, :details
);

-- name: find
-- A batch of an owner.
SELECT * FROM batches WHERE owner = :owner AND id = :id AND NOT is_deleted;

-- name: find_to_cancel
-- A batch of an owner, which nobody else changes until the transaction ends.
SELECT *, moment(:now) AS now FROM batches
WHERE owner = :owner AND id = :id AND NOT is_deleted
FOR UPDATE;

-- name: page
-- Batches of an owner, the newest first.
SELECT * FROM batches
WHERE owner = :owner AND NOT is_deleted AND (CAST(:after AS TEXT) IS NULL OR id < :after)
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
UPDATE batches SET is_deleted = TRUE, key = NULL, epoch = epoch + 1 WHERE owner = :owner;

-- name: claim
-- Takes the batch that waits longest, at its next epoch.
WITH next AS (
  SELECT owner, id FROM batches
  WHERE NOT is_over AND NOT is_deleted AND due_at <= moment(:now)
    AND (lease_until IS NULL OR lease_until <= moment(:now))
  ORDER BY saved_at, id
  LIMIT 1
  FOR UPDATE SKIP LOCKED
)
UPDATE batches b
SET epoch = b.epoch + 1, lease_until = moment(:now) + CAST(:lease_s AS DOUBLE PRECISION)
FROM next
WHERE b.owner = next.owner AND b.id = next.id
RETURNING b.*, moment(:now) AS now;

-- name: around
-- What goes on beside one batch: lines of others and of its owner's others that have a turn which
-- has not ended, batches in progress, and its owner's.
SELECT
  (
    SELECT count(*)
    FROM batch_lines l JOIN batches b ON b.owner = l.owner AND b.id = l.batch_id
      JOIN turns t ON t.owner = l.owner AND t.key = l.turn_key
      JOIN open_turns o ON o.owner = t.owner AND o.reply_id = t.reply_id
    WHERE l.state = 'open' AND NOT b.is_over AND NOT b.is_deleted
      AND (l.owner <> :owner OR l.batch_id <> :id)
  ) AS open_elsewhere,
  (
    SELECT count(*)
    FROM batch_lines l JOIN batches b ON b.owner = l.owner AND b.id = l.batch_id
      JOIN turns t ON t.owner = l.owner AND t.key = l.turn_key
      JOIN open_turns o ON o.owner = t.owner AND o.reply_id = t.reply_id
    WHERE l.owner = :owner AND l.state = 'open'
      AND NOT b.is_over AND NOT b.is_deleted
      AND l.batch_id <> :id
  ) AS open_of_owner,
  (
    SELECT count(*) FROM batches
    WHERE NOT is_over AND NOT is_deleted AND status = 'in_progress'
  ) AS batches,
  (
    SELECT count(*) FROM batches
    WHERE NOT is_over AND NOT is_deleted AND status = 'in_progress' AND owner = :owner
  ) AS of_owner;

-- name: open_lines
-- The open lines of a batch, each with its turn.
SELECT l.*, coalesce(o.status, t.final_status) AS turn_status, t.finish, t.failure,
  t.input_tokens, t.cached_tokens, t.output_tokens
FROM batch_lines l
LEFT JOIN turns t ON t.owner = l.owner AND t.key = l.turn_key
LEFT JOIN open_turns o ON o.owner = t.owner AND o.reply_id = t.reply_id
WHERE l.owner = :owner AND l.batch_id = :id AND l.state = 'open'
ORDER BY l.n;

-- name: taken
-- Which custom ids a batch has already.
SELECT custom_id FROM batch_lines
WHERE owner = :owner AND batch_id = :id AND custom_id = ANY (CAST(:custom_ids AS TEXT[]));

-- name: lines
-- The next lines after one.
SELECT l.* FROM batch_lines l JOIN batches b ON b.owner = l.owner AND b.id = l.batch_id
WHERE l.owner = :owner AND l.batch_id = :id AND l.n > :after AND NOT b.is_deleted
ORDER BY l.n
LIMIT :rows;

-- name: save
-- All that a step changed of a batch, under its epoch.
UPDATE batches
SET status = :status, is_over = :is_over, has_lines = :has_lines, details = :details,
    lease_until = CASE WHEN :releases THEN NULL ELSE lease_until END,
    due_at = CASE WHEN :releases THEN :due_at ELSE due_at END,
    saved_at = CASE WHEN :releases THEN moment(:now) ELSE saved_at END
WHERE owner = :owner AND id = :id AND epoch = :epoch AND NOT is_deleted
RETURNING id;

-- name: put_lines
-- New lines, or how far they have come.
INSERT INTO batch_lines (
  owner, batch_id, n, number, custom_id, first_byte, size, state, tries, retry_at, error, turn_key
)
SELECT :owner, :batch_id, l.* FROM unnest(
  CAST(:n AS BIGINT[]), CAST(:number AS BIGINT[]), CAST(:custom_id AS TEXT[]),
  CAST(:first_byte AS BIGINT[]), CAST(:size AS BIGINT[]), CAST(:state AS TEXT[]),
  CAST(:tries AS BIGINT[]), CAST(:retry_at AS DOUBLE PRECISION[]), CAST(:error AS TEXT[]),
  CAST(:turn_key AS TEXT[])
) AS l (n, number, custom_id, first_byte, size, state, tries, retry_at, error, turn_key)
ON CONFLICT (owner, batch_id, n) DO UPDATE
SET state = excluded.state, tries = excluded.tries, retry_at = excluded.retry_at,
    error = excluded.error;

-- name: delete_lines
-- Some lines of batches that ended or were deleted; how many. Their turns are forgotten from then
-- on like any other of no conversation.
WITH waste AS (
  SELECT l.owner, l.batch_id, l.n
  FROM batches b JOIN batch_lines l ON l.owner = b.owner AND l.batch_id = b.id
  WHERE b.has_lines AND (b.is_over OR b.is_deleted)
  ORDER BY b.owner, b.id, l.n
  LIMIT :rows
), removed AS (
  DELETE FROM batch_lines l USING waste w
  WHERE l.owner = w.owner AND l.batch_id = w.batch_id AND l.n = w.n
  RETURNING l.owner, l.turn_key
), loosened AS (
  UPDATE turns t SET kind = 'stateless' FROM removed r
  WHERE t.owner = r.owner AND t.key = r.turn_key
)
SELECT count(*) AS lines FROM removed;

-- name: emptied
-- Notes which of those batches have no line left.
UPDATE batches b SET has_lines = FALSE
WHERE b.has_lines AND (b.is_over OR b.is_deleted) AND NOT EXISTS (
  SELECT 1 FROM batch_lines l WHERE l.owner = b.owner AND l.batch_id = b.id
);

-- name: forget
-- Removes batches without lines that were deleted, or are old.
DELETE FROM batches
WHERE NOT has_lines AND (
  is_deleted OR (is_over AND created_at <= moment(:now) - CAST(:kept_s AS DOUBLE PRECISION))
);
