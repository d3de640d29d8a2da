-- People's own instructions. The newest holds; an empty text is none, and keeps its number taken.

-- name: current
-- The newest version of an owner's.
SELECT version, text, tokens, tokenizer, written_at FROM instructions
WHERE owner = :owner
ORDER BY version DESC
LIMIT 1;

-- name: find
-- One version.
SELECT version, text, tokens, tokenizer, written_at FROM instructions
WHERE owner = :owner AND version = :version;

-- name: add
-- A new version.
INSERT INTO instructions (owner, version, text, tokens, tokenizer, written_at)
VALUES (:owner, :version, :text, :tokens, :tokenizer, :now);

-- name: prune
-- Removes earlier versions that no conversation keeps to.
DELETE FROM instructions
WHERE owner = :owner AND version < :version
  AND NOT EXISTS (
    SELECT 1 FROM conversations c
    WHERE c.owner = :owner AND c.instructions = instructions.version AND c.instructions > 0
  );

-- name: forget
-- Removes all versions but one.
DELETE FROM instructions WHERE owner = :owner AND version < :version;
