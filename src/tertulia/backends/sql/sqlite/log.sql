-- Logs of replies: one head and its numbered entries. A buried head refuses every writer.

-- name: head
-- Who may write, and how far the log goes.
SELECT fence, attempt, last, buried_at FROM log_heads WHERE reply_id = ?;

-- name: add_head
-- A log begins.
INSERT INTO log_heads (reply_id, fence, attempt, last) VALUES (?, ?, ?, ?);

-- name: raise_fence
-- A claim takes the log.
UPDATE log_heads SET fence = ? WHERE reply_id = ?;

-- name: go_on
-- The fence-checked step of an append: changes no row if the writer is not the holder.
UPDATE log_heads SET last = ? WHERE reply_id = ? AND fence = ? AND attempt = ? AND last = ?;

-- name: add_entry
-- One numbered event.
INSERT INTO log_entries (reply_id, seq, kind, data, ids) VALUES (?, ?, ?, ?, ?);

-- name: entries
-- All events of a log in order.
SELECT seq, kind, data, ids FROM log_entries WHERE reply_id = ? ORDER BY seq;

-- name: restart
-- Empties the head for a new attempt.
UPDATE log_heads SET fence = max(fence, ?), attempt = ?, last = 0 WHERE reply_id = ?;

-- name: forget_entries
-- Removes the events of a log.
DELETE FROM log_entries WHERE reply_id = ?;

-- name: forget_head
-- Removes the head of a log that is not buried.
DELETE FROM log_heads WHERE reply_id = ? AND buried_at IS NULL;

-- name: bury
-- Leaves a head that no epoch passes.
INSERT INTO log_heads (reply_id, fence, attempt, last, buried_at)
VALUES (:reply_id, :fence, 0, 0, :now)
ON CONFLICT (reply_id) DO UPDATE SET fence = :fence, attempt = 0, last = 0, buried_at = :now;

-- name: finished_before
-- Logs of turns that finished before a moment.
SELECT h.reply_id FROM log_heads h JOIN turns t ON t.reply_id = h.reply_id
WHERE t.finished_at <= :moment AND t.status NOT IN ('queued', 'running')
  AND h.buried_at IS NULL;

-- name: unbury
-- Removes buried heads that no writer can still ask for.
DELETE FROM log_heads WHERE buried_at <= ?;
