-- The same turns seen as work. A lease is live while it lies after now, store's clock.

-- name: standing
-- By what a turn is ranked: its owner's tag, how far its lane has come, and the highest rank of its
-- owner's other turns that still wait there.
SELECT
  coalesce((SELECT tag FROM tags WHERE owner = :owner AND lane = :lane), 0) AS tag,
  (
    SELECT rank FROM turns
    WHERE status IN ('queued', 'running') AND lane = :lane AND (lease_until IS NULL) = 1
      AND reply_id <> :reply_id
    ORDER BY rank LIMIT 1
  ) AS first,
  (SELECT tag FROM tags WHERE lane = :lane ORDER BY tag DESC LIMIT 1) AS highest_tag,
  (
    SELECT max(rank) FROM turns
    WHERE status IN ('queued', 'running') AND owner = :owner AND lane = :lane
      AND lease_until IS NULL AND reply_id <> :reply_id
  ) AS last;

-- name: line_up
-- The rank of a turn that was admitted anew.
UPDATE turns SET rank = :rank WHERE owner = :owner AND reply_id = :reply_id;

-- name: put_tag
-- What an owner's turns of a lane have come to.
INSERT INTO tags (owner, lane, tag) VALUES (:owner, :lane, :tag)
ON CONFLICT (owner, lane) DO UPDATE SET tag = excluded.tag;

-- name: give_back
-- So much did a turn not cost that its owner's tag went up by.
UPDATE tags SET tag = tag - :cost WHERE owner = :owner AND lane = :lane;

-- name: running
-- How many turns of each lane were claimed and have not ended.
SELECT lane, count(*) AS running FROM turns WHERE status = 'running' GROUP BY lane;

-- name: claim_next
-- The first open turn of these lanes that nobody holds. One that was never claimed waits for a
-- model that is full.
SELECT * FROM whole_turns
WHERE status IN ('queued', 'running')
  AND lane <= :lowest
  AND (lease_until IS NULL OR lease_until <= :now)
  AND reply_id NOT IN (SELECT value FROM json_each(:skip))
  AND (
    lease_until IS NOT NULL OR awaited IS NULL
    OR lane || ' ' || awaited NOT IN (SELECT value FROM json_each(:full))
  )
ORDER BY lane, lease_until IS NULL, rank, created_at, reply_id
LIMIT 1;

-- name: take
-- A claim: its epoch and a lease.
UPDATE turns SET epoch = :epoch, status = :status, lease_until = :lease_until
WHERE owner = :owner AND reply_id = :reply_id;

-- name: count_begun
-- One more turn of a lane was claimed for the first time.
INSERT INTO begun (lane, turns) VALUES (:lane, 1)
ON CONFLICT (lane) DO UPDATE SET turns = turns + 1;

-- name: lanes
-- How many turns of each lane wait that were never claimed, and how many run.
SELECT lane, sum(lease_until IS NULL) AS queued, sum(status = 'running') AS running FROM turns
WHERE status IN ('queued', 'running')
GROUP BY lane;

-- name: awaiting
-- How many turns of each lane that were never claimed wait for one model.
SELECT lane, awaited, count(*) AS queued FROM turns
WHERE status IN ('queued', 'running') AND lease_until IS NULL AND awaited IS NOT NULL
GROUP BY lane, awaited;

-- name: running_on
-- How many turns run on each model, as far as that is known.
SELECT model, count(*) AS running FROM turns
WHERE status = 'running' AND model IS NOT NULL
GROUP BY model;

-- name: begun
-- How many turns of each lane were ever claimed for the first time.
SELECT lane, turns FROM begun;

-- name: places
-- Where these replies stand among all that were never claimed.
SELECT owner, reply_id, place FROM (
  SELECT owner, reply_id,
    row_number() OVER (ORDER BY lane, rank, created_at, reply_id) AS place
  FROM turns
  WHERE status IN ('queued', 'running') AND lease_until IS NULL
)
WHERE reply_id IN (SELECT value FROM json_each(:reply_ids));

-- name: show_running
-- The reply of a claimed turn is shown as running.
UPDATE messages SET status = 'running' WHERE owner = :owner AND id = :reply_id;

-- name: lease
-- Moves the end of a lease that is still held under this epoch.
UPDATE turns SET lease_until = :until
WHERE owner = :owner AND reply_id = :reply_id AND epoch = :epoch AND status IN ('queued', 'running');

-- name: abandoned
-- Open turns that nobody has followed for as long as theirs may be left.
SELECT * FROM whole_turns
WHERE status IN ('queued', 'running') AND followed_at <= :now - abandon_s
ORDER BY created_at, reply_id;

-- name: stale
-- Open turns that nobody has held for long, or that never were.
SELECT * FROM whole_turns
WHERE status IN ('queued', 'running')
  AND CASE WHEN lease_until IS NULL THEN created_at <= :queued_before AND lane < :batch
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
