-- The same turns seen as work. A lease is live while it lies after now, store's clock.

-- name: claim_next
-- Takes the first open turn that nobody holds, at its next epoch.
UPDATE turns SET epoch = epoch + 1, status = 'running', lease_until = :until
WHERE id = (
  SELECT id FROM turns
  WHERE status IN ('queued', 'running')
    AND (lease_until IS NULL OR lease_until <= :now)
    AND reply_id NOT IN (SELECT value FROM json_each(:skip))
  ORDER BY lane, created_at, reply_id
  LIMIT 1
)
RETURNING owner, reply_id;

-- name: show_running
-- The reply of a claimed turn is shown as running.
UPDATE messages SET status = 'running' WHERE owner = :owner AND id = :reply_id;

-- name: lease
-- Moves the end of a lease that is still held under this epoch.
UPDATE turns SET lease_until = :until
WHERE reply_id = :reply_id AND epoch = :epoch AND status IN ('queued', 'running');

-- name: open_followed_before
-- Open turns that were last followed before a moment, by plan.
SELECT * FROM whole_turns
WHERE status IN ('queued', 'running') AND plan = :plan AND followed_at <= :moment;

-- name: stale
-- Open turns that nobody has held for long, or that never were.
SELECT * FROM whole_turns
WHERE status IN ('queued', 'running')
  AND CASE WHEN lease_until IS NULL THEN created_at <= :queued_before
      ELSE lease_until <= :held_before END
ORDER BY created_at, reply_id;

-- name: restart
-- Ends all leases and counts every open turn as followed now.
UPDATE turns
SET followed_at = :now, lease_until = CASE WHEN lease_until IS NULL THEN NULL ELSE :now END
WHERE status IN ('queued', 'running');

-- name: seen
-- Marks open turns as followed now.
UPDATE turns SET followed_at = :now
WHERE status IN ('queued', 'running')
  AND reply_id IN (SELECT value FROM json_each(:reply_ids));
