-- Orders to delete: what was to go, what was reached, and when to look again. No words are here.

-- name: order
-- A new order, or the same anew; none of somebody who has left, but for the account's own.
INSERT INTO deletions (owner, target, kind, requested_at, reached, looks, due_at, done_at)
SELECT :owner, :target, :kind, moment(:now),
  CAST(json_build_object('rows', json_build_array(CAST(:rows AS TEXT), moment(:now))) AS TEXT),
  0, moment(:now), NULL
WHERE :kind = 'account' OR NOT EXISTS (SELECT 1 FROM departed WHERE id = :owner)
ON CONFLICT (owner, target) DO UPDATE
SET kind = excluded.kind, requested_at = excluded.requested_at, reached = excluded.reached,
    looks = 0, due_at = excluded.due_at, done_at = NULL;

-- name: claim
-- Takes the order that has been due longest, for a while.
WITH next AS (
  SELECT owner, target FROM deletions
  WHERE done_at IS NULL AND due_at <= moment(:now)
  ORDER BY due_at, owner, target
  LIMIT 1
  FOR UPDATE SKIP LOCKED
)
UPDATE deletions d SET due_at = moment(:now) + CAST(:lease_s AS DOUBLE PRECISION)
FROM next
WHERE d.owner = next.owner AND d.target = next.target
RETURNING d.*, moment(:now) AS now;

-- name: save
-- What a look found, unless another look, or the same order anew, came first.
UPDATE deletions
SET reached = :reached, looks = :looks,
    due_at = moment(:now) + CAST(:pause_s AS DOUBLE PRECISION),
    done_at = CASE WHEN :is_over THEN moment(:now) END
WHERE owner = :owner AND target = :target AND requested_at = :requested_at
  AND looks = CAST(:looks AS BIGINT) - 1 AND done_at IS NULL
RETURNING owner;

-- name: page
-- Orders before a place, newest first.
SELECT * FROM deletions
WHERE (requested_at, owner, target) < (:requested_at, :owner, :target)
ORDER BY requested_at DESC, owner DESC, target DESC
LIMIT :rows;

-- name: overdue
-- How many orders are not over that are this old.
SELECT count(*) AS orders FROM deletions
WHERE done_at IS NULL AND requested_at <= moment(:now) - CAST(:age_s AS DOUBLE PRECISION);

-- name: sweep
-- Removes some orders that have been over for long; how many.
WITH waste AS (
  SELECT owner, target FROM deletions
  WHERE done_at IS NOT NULL AND done_at <= moment(:now) - CAST(:kept_s AS DOUBLE PRECISION)
  ORDER BY done_at, owner, target
  LIMIT :rows
), removed AS (
  DELETE FROM deletions d USING waste w
  WHERE d.owner = w.owner AND d.target = w.target
  RETURNING d.owner
)
SELECT count(*) AS orders FROM removed;

-- name: close
-- The user with all that he has a name and a password by, leaving a mark of the name.
WITH gone AS (
  DELETE FROM users WHERE id = :id RETURNING id
), identities_gone AS (
  DELETE FROM identities WHERE user_id = :id
), sessions_gone AS (
  DELETE FROM sessions WHERE user_id = :id
), links_gone AS (
  DELETE FROM links WHERE user_id = :id
), keys_gone AS (
  DELETE FROM api_keys WHERE owner = :id
)
INSERT INTO departed (id, name_mark, left_at)
SELECT id, :name_mark, moment(:now) FROM gone;

-- name: left
-- What is there of a conversation, and of its owner at all; logs that were to be buried by then.
SELECT
  EXISTS (SELECT 1 FROM conversations WHERE owner = :owner AND id = :target) AS conversation,
  EXISTS (SELECT 1 FROM conversations WHERE owner = :owner)
  OR EXISTS (SELECT 1 FROM messages WHERE owner = :owner)
  OR EXISTS (SELECT 1 FROM turns WHERE owner = :owner)
  OR EXISTS (SELECT 1 FROM imports WHERE owner = :owner)
  OR EXISTS (SELECT 1 FROM instructions WHERE owner = :owner AND text <> '') AS rows,
  EXISTS (SELECT 1 FROM batches WHERE owner = :owner)
  OR EXISTS (SELECT 1 FROM batch_lines WHERE owner = :owner) AS batches,
  EXISTS (SELECT 1 FROM files WHERE owner = :owner)
  OR EXISTS (SELECT 1 FROM file_parts WHERE owner = :owner) AS files,
  EXISTS (
    SELECT 1 FROM log_removals WHERE owner = :owner AND deleted_at <= :requested_at
  ) AS logs;

-- name: aged_conversations
-- Conversations that nobody wrote in, or brought along, for longer than their owner's are kept.
SELECT c.owner, c.id
FROM unnest(CAST(:owners AS TEXT[]), CAST(:kept_s AS DOUBLE PRECISION[])) AS k (owner, kept_s)
JOIN conversations c
  ON c.owner = k.owner AND c.updated_at <= moment(:now) - k.kept_s
  AND coalesce(c.arrived_at, 0) <= moment(:now) - k.kept_s
ORDER BY c.owner, c.id
LIMIT :rows;

-- name: tables_of
-- The tables that hold an owner's rows, and those that were made for everybody's credentials.
SELECT CAST(i.inhrelid AS REGCLASS) AS name
FROM pg_partitioned_table p
JOIN pg_inherits i ON i.inhparent = p.partrelid
JOIN pg_class part ON part.oid = i.inhrelid,
LATERAL regexp_match(
  pg_get_expr(part.relpartbound, part.oid), 'modulus (\d+), remainder (\d+)'
) AS bound
WHERE p.partrelid = ANY (ARRAY(
    SELECT oid FROM pg_class
    WHERE relnamespace = CAST(current_schema() AS REGNAMESPACE) AND relkind = 'p'
  ))
  AND satisfies_hash_partition(
    p.partrelid, CAST(bound[1] AS INTEGER), CAST(bound[2] AS INTEGER), CAST(:owner AS TEXT)
  )
UNION ALL
SELECT CAST(word AS REGCLASS) FROM unnest(ARRAY['users', 'sessions', 'links', 'api_keys']) AS word;
