-- Turns of no conversation, as far as they are forgotten.

-- name: ended
-- Those that ended before a moment, the oldest first, and whether one may be run again.
SELECT owner, reply_id, final_status = 'failed' AS may_run_again FROM turns
WHERE kind = 'stateless' AND finished_at <= moment(:now) - :ended_s
ORDER BY finished_at, reply_id
LIMIT :rows;

-- name: remove
-- Takes turns away that have ended, and keeps the ids of their logs for burial.
WITH gone AS (
  DELETE FROM turns t
  USING unnest(CAST(:owners AS TEXT[]), CAST(:reply_ids AS TEXT[])) AS w (owner, reply_id)
  WHERE t.owner = w.owner AND t.reply_id = w.reply_id
    AND t.kind = 'stateless' AND t.final_status IS NOT NULL
  RETURNING t.owner, t.reply_id, t.thread, t.finished_at
), logged AS (
  INSERT INTO log_removals (owner, reply_id, deleted_at)
  SELECT owner, reply_id, moment(:now) FROM gone
  ON CONFLICT (owner, reply_id) DO NOTHING
)
SELECT owner, reply_id, thread, finished_at FROM gone;

-- name: going_on
-- Which of some threads have a turn left.
SELECT w.owner, w.thread
FROM unnest(CAST(:owners AS TEXT[]), CAST(:threads AS TEXT[])) AS w (owner, thread)
WHERE EXISTS (SELECT 1 FROM turns t WHERE t.owner = w.owner AND t.thread = w.thread);
