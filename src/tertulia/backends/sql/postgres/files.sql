-- Files, in parts. What was deleted is out of sight at once; a chore removes its parts.

-- name: taken
-- What an owner's other files take, and this file as far as it came; and the same with those that
-- were deleted and are not overwritten yet.
SELECT
  (SELECT count(*) FROM files WHERE owner = :owner AND id <> :id AND NOT is_deleted) AS files,
  (
    SELECT CAST(coalesce(sum(size), 0) AS BIGINT) FROM files
    WHERE owner = :owner AND NOT is_deleted
  ) AS size,
  (SELECT count(*) FROM files WHERE owner = :owner AND id <> :id) AS files_on_disk,
  (SELECT CAST(coalesce(sum(size), 0) AS BIGINT) FROM files WHERE owner = :owner) AS size_on_disk;

-- name: begin
-- A file before its first byte.
INSERT INTO files (owner, id, name, purpose, created_at, expires_at, size, is_whole, is_deleted)
VALUES (:owner, :id, :name, :purpose, moment(:now),
  moment(:now) + CAST(:kept_s AS DOUBLE PRECISION), 0, FALSE, FALSE)
ON CONFLICT (owner, id) DO NOTHING;

-- name: grow
-- An unfinished file that ends at a byte becomes longer.
UPDATE files
SET size = size + :length, is_whole = :is_last,
    expires_at = created_at + CAST(:kept_s AS DOUBLE PRECISION)
WHERE owner = :owner AND id = :id AND size = :first_byte AND NOT is_whole AND NOT is_deleted
RETURNING id;

-- name: add_part
-- The bytes themselves.
INSERT INTO file_parts (owner, file_id, first_byte, data)
VALUES (:owner, :id, :first_byte, :data);

-- name: find
-- A whole file of an owner.
SELECT * FROM files
WHERE owner = :owner AND id = :id AND is_whole AND NOT is_deleted AND expires_at > moment(:now);

-- name: newest
-- Whole files of an owner, the newest first.
SELECT * FROM files
WHERE owner = :owner AND is_whole AND NOT is_deleted AND expires_at > moment(:now)
  AND (CAST(:after AS TEXT) IS NULL OR id < :after)
  AND (CAST(:purpose AS TEXT) IS NULL OR purpose = :purpose)
ORDER BY id DESC
LIMIT :rows;

-- name: oldest
-- The same, the oldest first.
SELECT * FROM files
WHERE owner = :owner AND is_whole AND NOT is_deleted AND expires_at > moment(:now)
  AND (CAST(:after AS TEXT) IS NULL OR id > :after)
  AND (CAST(:purpose AS TEXT) IS NULL OR purpose = :purpose)
ORDER BY id
LIMIT :rows;

-- name: parts
-- The parts of a whole file that may hold some of the bytes between two places, and none of a file
-- that is gone: its own row says so.
SELECT p.first_byte, p.data
FROM files f LEFT JOIN file_parts p
  ON p.owner = f.owner AND p.file_id = f.id
  AND p.first_byte > CAST(:at AS BIGINT) - CAST(:part_bytes AS BIGINT)
  AND p.first_byte < CAST(:end AS BIGINT)
WHERE f.owner = :owner AND f.id = :id AND f.is_whole AND NOT f.is_deleted
  AND f.expires_at > moment(:now)
ORDER BY p.first_byte;

-- name: delete
-- Takes a file, or all of an owner, out of sight; how many.
WITH gone AS (
  UPDATE files SET is_deleted = TRUE
  WHERE owner = :owner AND (CAST(:id AS TEXT) IS NULL OR id = :id) AND NOT is_deleted
    AND expires_at > moment(:now)
  RETURNING id
)
SELECT count(*) AS files FROM gone;

-- name: give_up
-- What expired, and uploads that were never finished, count as deleted.
UPDATE files SET is_deleted = TRUE
WHERE NOT is_deleted AND (
  expires_at <= moment(:now)
  OR (NOT is_whole AND purpose <> 'batch_output'
      AND created_at <= moment(:now) - CAST(:late_s AS DOUBLE PRECISION))
);

-- name: delete_parts
-- Some parts of deleted files; how many.
WITH waste AS (
  SELECT p.owner, p.file_id, p.first_byte
  FROM files f JOIN file_parts p ON p.owner = f.owner AND p.file_id = f.id
  WHERE f.is_deleted
  ORDER BY f.owner, f.id, p.first_byte DESC
  LIMIT :parts
), removed AS (
  DELETE FROM file_parts p USING waste w
  WHERE p.owner = w.owner AND p.file_id = w.file_id AND p.first_byte = w.first_byte
  RETURNING p.first_byte
)
SELECT count(*) AS parts FROM removed;

-- name: forget
-- Deleted files without a part.
DELETE FROM files f
WHERE f.is_deleted AND NOT EXISTS (
  SELECT 1 FROM file_parts p WHERE p.owner = f.owner AND p.file_id = f.id
);
