-- Turns of no conversation, as far as they are forgotten.

-- name: ended
-- Those that ended before a moment, the oldest first.
SELECT owner, reply_id, thread FROM turns
WHERE kind = 'stateless' AND finished_at <= :moment
ORDER BY finished_at, reply_id
LIMIT :rows;

-- name: ended_one
-- One that has ended.
SELECT owner, reply_id, thread FROM turns
WHERE kind = 'stateless' AND owner = :owner AND reply_id = :reply_id AND finished_at IS NOT NULL;

-- name: remove
-- Takes a turn away, words and key.
DELETE FROM turns WHERE reply_id = :reply_id;

-- name: goes_on
-- Whether any turn of a thread is left.
SELECT 1 FROM turns WHERE owner = :owner AND thread = :thread;
