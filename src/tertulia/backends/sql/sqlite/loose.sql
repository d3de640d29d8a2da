-- Turns of no conversation, as far as they are forgotten.

-- name: ended
-- Those that ended before a moment, the oldest first.
SELECT t.*, t.text AS reply_text FROM turns t
WHERE t.kind = 'stateless' AND t.finished_at <= :moment
ORDER BY t.finished_at, t.reply_id
LIMIT :rows;

-- name: ended_one
-- One that has ended.
SELECT t.*, t.text AS reply_text FROM turns t
WHERE t.kind = 'stateless' AND t.owner = :owner AND t.reply_id = :reply_id
  AND t.finished_at IS NOT NULL;

-- name: remove
-- Takes a turn away, words and key.
DELETE FROM turns WHERE reply_id = ?;
