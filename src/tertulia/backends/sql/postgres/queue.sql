-- The same turns seen as work. A lease is live while it lies after now, store's clock.

-- name: claim
-- Takes the first open turn that nobody holds, at its next epoch, from these lanes and those that
-- `ranked_slots` allow: `core.waiting.lowest_lane`. Those that nobody ever held and those that were
-- left behind are each first in an index of their own; the former let others pass while the model
-- that they wait for is full. The last line waits for a note that is being
-- written at this moment, and then reads it.
WITH busy AS (
  SELECT count(*) FILTER (WHERE lane = 0) AS plus, count(*) FILTER (WHERE lane <= 1) AS chat
  FROM open_turns
  WHERE lease_until IS NOT NULL AND status = 'running' AND CAST(:ranked_slots AS BIGINT) > 0
), allowed AS (
  SELECT greatest(
    CAST(:lowest AS BIGINT),
    CASE WHEN chat < CAST(:ranked_slots AS BIGINT) THEN 1
         WHEN plus < CAST(:ranked_slots AS BIGINT) THEN 0 END
  ) AS lane
  FROM busy
), waiting AS (
  SELECT owner, reply_id, lane, rank, created_at, status, TRUE AS is_new FROM open_turns
  WHERE lease_until IS NULL AND lane <= (SELECT allowed.lane FROM allowed)
    AND reply_id <> ALL (:skip)
    AND (awaited IS NULL OR lane || ' ' || awaited <> ALL (CAST(:full AS TEXT[])))
  ORDER BY lane, rank, created_at, reply_id
  LIMIT 1
  FOR UPDATE SKIP LOCKED
), left_behind AS (
  SELECT owner, reply_id, lane, rank, created_at, status, FALSE AS is_new FROM open_turns
  WHERE lease_until <= moment(:now) AND lane <= (SELECT allowed.lane FROM allowed)
    AND reply_id <> ALL (:skip)
  ORDER BY lane, rank, created_at, reply_id
  LIMIT 1
  FOR UPDATE SKIP LOCKED
), next AS (
  SELECT owner, reply_id, lane, status
  FROM (SELECT * FROM waiting UNION ALL SELECT * FROM left_behind) AS free
  ORDER BY lane, is_new, rank, created_at, reply_id
  LIMIT 1
), counted AS (
  INSERT INTO begun (lane, part, turns)
  SELECT lane, hashtext(owner) & 15, 1 FROM next WHERE status = 'queued'
  ON CONFLICT (lane, part) DO UPDATE SET turns = begun.turns + 1
), taken AS (
  UPDATE open_turns o
  SET epoch = o.epoch + 1, status = 'running', lease_until = moment(:now) + :lease_s
  FROM next
  WHERE o.owner = next.owner AND o.reply_id = next.reply_id
  RETURNING o.owner, o.reply_id, o.status, o.epoch, o.lease_until, o.followed_at, o.stop_reason,
    o.budgets, o.abandon_s
), shown AS (
  UPDATE messages m SET status = taken.status
  FROM taken
  WHERE m.owner = taken.owner AND m.id = taken.reply_id
)
SELECT t.*, t.text AS reply_text, taken.budgets, taken.abandon_s,
  taken.status, taken.epoch, taken.lease_until, taken.followed_at, taken.stop_reason
FROM taken JOIN turns t ON t.owner = taken.owner AND t.reply_id = taken.reply_id
FOR UPDATE OF t;

-- name: lease
-- Moves the end of leases that are still held; the others. Always locked in one order, so that two
-- never wait for each other. A crash that forgets it only ends a lease early.
WITH asked AS (
  SELECT * FROM unnest(
    CAST(:owners AS TEXT[]), CAST(:reply_ids AS TEXT[]), CAST(:epochs AS BIGINT[])
  ) AS a (owner, reply_id, epoch)
), held AS (
  SELECT o.owner, o.reply_id, o.epoch
  FROM asked a JOIN open_turns o
    ON o.owner = a.owner AND o.reply_id = a.reply_id AND o.epoch = a.epoch
  ORDER BY o.owner, o.reply_id
  FOR UPDATE OF o
), hasty AS (
  SELECT set_config('synchronous_commit', 'off', TRUE)
), moved AS (
  UPDATE open_turns o SET lease_until = moment(:now) + :lease_s
  FROM held, hasty
  WHERE o.owner = held.owner AND o.reply_id = held.reply_id
)
SELECT owner, reply_id, epoch FROM asked EXCEPT SELECT owner, reply_id, epoch FROM held;

-- name: seen
-- Marks open turns as followed now. A crash that forgets it only makes a follower look gone for a
-- moment.
WITH held AS (
  SELECT o.owner, o.reply_id
  FROM unnest(CAST(:owners AS TEXT[]), CAST(:reply_ids AS TEXT[])) AS a (owner, reply_id)
    JOIN open_turns o ON o.owner = a.owner AND o.reply_id = a.reply_id
  ORDER BY o.owner, o.reply_id
  FOR UPDATE OF o
), hasty AS (
  SELECT set_config('synchronous_commit', 'off', TRUE)
)
UPDATE open_turns o SET followed_at = moment(:now)
FROM held, hasty
WHERE o.owner = held.owner AND o.reply_id = held.reply_id;

-- name: abandoned
-- Open turns that nobody has followed for as long as theirs may be left, oldest first.
SELECT t.*
FROM open_turns o JOIN whole_turns t ON t.owner = o.owner AND t.reply_id = o.reply_id
WHERE o.followed_at <= moment(:now) - o.abandon_s
ORDER BY o.created_at, o.reply_id
LIMIT :rows;

-- name: stale
-- Open turns that nobody has held for long, or that never were, oldest first.
SELECT t.*
FROM open_turns o JOIN whole_turns t ON t.owner = o.owner AND t.reply_id = o.reply_id
WHERE CASE WHEN o.lease_until IS NULL
        THEN o.created_at <= moment(:now) - :queued_age_s AND o.lane < :batch
      ELSE o.lease_until <= moment(:now) - :held_age_s END
ORDER BY o.created_at, o.reply_id
LIMIT :rows;

-- name: restart
-- Ends all leases and counts every open turn as followed now.
UPDATE open_turns
SET followed_at = moment(:now),
    lease_until = CASE WHEN lease_until IS NULL THEN NULL ELSE moment(:now) END;

-- name: look
-- How many turns of each lane wait that were never claimed, how many run, how many ever began, how
-- many wait for one model, how many run on each, and where these replies stand among all that were
-- never claimed.
SELECT moment(:now) AS at,
  (
    SELECT json_agg(json_build_array(l.lane, l.queued, l.running)) FROM (
      SELECT lane, count(*) FILTER (WHERE lease_until IS NULL) AS queued,
        count(*) FILTER (WHERE status = 'running') AS running
      FROM open_turns GROUP BY lane
    ) AS l
  ) AS lanes,
  (
    SELECT json_agg(json_build_array(b.lane, b.turns)) FROM (
      SELECT lane, CAST(sum(turns) AS BIGINT) AS turns FROM begun GROUP BY lane
    ) AS b
  ) AS begun,
  (
    SELECT json_agg(json_build_array(w.lane, w.awaited, w.queued)) FROM (
      SELECT lane, awaited, count(*) AS queued FROM open_turns
      WHERE lease_until IS NULL AND awaited IS NOT NULL
      GROUP BY lane, awaited
    ) AS w
  ) AS awaiting,
  (
    SELECT json_agg(json_build_array(r.model, r.running)) FROM (
      SELECT model, count(*) AS running FROM open_turns
      WHERE status = 'running' AND model IS NOT NULL
      GROUP BY model
    ) AS r
  ) AS running_on,
  (
    SELECT json_agg(json_build_array(p.owner, p.reply_id, p.place)) FROM (
      SELECT owner, reply_id,
        row_number() OVER (ORDER BY lane, rank, created_at, reply_id) AS place
      FROM open_turns
      WHERE lease_until IS NULL AND cardinality(CAST(:reply_ids AS TEXT[])) > 0
    ) AS p
    WHERE p.reply_id = ANY (:reply_ids)
  ) AS places;
