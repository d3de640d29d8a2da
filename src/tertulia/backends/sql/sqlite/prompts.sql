-- The rollout of system prompts, who is on which version, and who moves.

-- name: rollout
-- What was last rolled out.
SELECT base, version, share, configured FROM rollout;

-- name: first
-- The first rollout there is.
INSERT INTO rollout (id, base, version, share, configured)
VALUES (1, :base, :version, :share, :configured)
ON CONFLICT (id) DO NOTHING;

-- name: next
-- The next one, if nobody else did anything since.
UPDATE rollout
SET base = :base, version = :version, share = :share, configured = :configured
WHERE base = :seen_base AND version = :seen_version AND share = :seen_share
  AND configured = :seen_configured;

-- name: used
-- The newest versions, each with the number of its conversations up to a bound.
SELECT p.version, p.text, p.created_at, (
    SELECT count(*) FROM (
      SELECT 1 FROM conversations c WHERE c.prompt_version = p.version LIMIT :most
    )
  ) AS conversations
FROM prompts p
ORDER BY p.created_at DESC, p.version DESC
LIMIT :rows;

-- name: move
-- From one footing to another, once.
UPDATE conversations SET prompt_version = :prompt_version, instructions = :instructions
WHERE owner = :owner AND id = :id
  AND prompt_version = :seen_prompt_version AND instructions = :seen_instructions;

-- name: footing
-- What a conversation stands on.
SELECT prompt_version, instructions FROM conversations WHERE owner = :owner AND id = :id;
