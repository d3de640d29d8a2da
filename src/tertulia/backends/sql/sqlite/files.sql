-- Files, in parts. What was deleted is out of sight at once; a chore removes its parts.

-- name: taken
-- What an owner's other files take, and this file as far as it came; and the same with those that
-- were deleted and are not overwritten yet.
SELECT
  (SELECT count(*) FROM files WHERE owner = :owner AND id <> :id AND is_deleted = 0) AS files,
  (SELECT coalesce(sum(size), 0) FROM files WHERE owner = :owner AND is_deleted = 0) AS size,
  (SELECT count(*) FROM files WHERE owner = :owner AND id <> :id) AS files_on_disk,
  (SELECT coalesce(sum(size), 0) FROM files WHERE owner = :owner) AS size_on_disk;

-- name: begin
-- A file before its first byte.
INSERT INTO files (owner, id, name, purpose, created_at, expires_at, size, is_whole, is_deleted)
VALUES (:owner, :id, :name, :purpose, :now, :now + :kept_s, 0, 0, 0)
ON CONFLICT (owner, id) DO NOTHING;

-- name: grow
-- An unfinished file that ends at a byte becomes longer.
UPDATE files
SET size = size + :length, is_whole = :is_last, expires_at = created_at + :kept_s
WHERE owner = :owner AND id = :id AND size = :first_byte AND is_whole = 0 AND is_deleted = 0;

-- name: add_part
-- The bytes themselves.
INSERT INTO file_parts (owner, file_id, first_byte, data)
VALUES (:owner, :id, :first_byte, :data);

-- name: find
-- A whole file of an owner.
SELECT * FROM files
WHERE owner = :owner AND id = :id AND is_whole = 1 AND is_deleted = 0 AND expires_at > :now;

-- name: newest
-- Whole files of an owner, the newest first.
SELECT * FROM files
WHERE owner = :owner AND is_whole = 1 AND is_deleted = 0 AND expires_at > :now
  AND (:after IS NULL OR id < :after) AND (:purpose IS NULL OR purpose = :purpose)
ORDER BY id DESC
LIMIT :rows;

-- name: oldest
-- The same, the oldest first.
SELECT * FROM files
WHERE owner = :owner AND is_whole = 1 AND is_deleted = 0 AND expires_at > :now
  AND (:after IS NULL OR id > :after) AND (:purpose IS NULL OR purpose = :purpose)
ORDER BY id
LIMIT :rows;

-- name: parts
-- The parts of a file that may hold some of the bytes between two places.
SELECT first_byte, data FROM file_parts
WHERE owner = :owner AND file_id = :id AND first_byte > :at - :part_bytes AND first_byte < :end
ORDER BY first_byte;

-- name: delete
-- Takes a file, or all of an owner, out of sight.
UPDATE files SET is_deleted = 1
WHERE owner = :owner AND (:id IS NULL OR id = :id) AND is_deleted = 0 AND expires_at > :now;

-- name: give_up
-- What expired, and uploads that were never finished, count as deleted.
UPDATE files SET is_deleted = 1
WHERE is_deleted = 0 AND (
  expires_at <= :now OR (is_whole = 0 AND purpose <> 'batch_output' AND created_at <= :late)
);

-- name: delete_parts
-- Some parts of deleted files.
DELETE FROM file_parts
WHERE rowid IN (
  SELECT p.rowid
  FROM files f JOIN file_parts p ON p.owner = f.owner AND p.file_id = f.id
  WHERE f.is_deleted = 1
  ORDER BY f.owner, f.id, p.first_byte DESC
  LIMIT :parts
);

-- name: forget
-- Deleted files without a part.
DELETE FROM files
WHERE is_deleted = 1 AND NOT EXISTS (
  SELECT 1 FROM file_parts p WHERE p.owner = files.owner AND p.file_id = files.id
);
