-- API keys, by the hash of their secret.

-- name: add
-- A new API key.
INSERT INTO api_keys (owner, id, name, prefix, secret_hash, created_at, last_used_at)
VALUES (:owner, :id, :name, :prefix, :secret_hash, :created_at, :last_used_at);

-- name: list
-- A user's keys, oldest first.
SELECT * FROM api_keys WHERE owner = :owner ORDER BY created_at, id;

-- name: revoke
-- Removes a user's own key.
DELETE FROM api_keys WHERE owner = :owner AND id = :id RETURNING id;

-- name: by_secret
-- The key of a secret and its user, if enabled, and whether its use is to be noted now.
SELECT k.*, u.name AS user_name, u.role, u.plan, u.password_hash, u.created_at AS user_created_at,
  u.disabled, u.evaluation, moment(:now) AS now,
  coalesce(k.last_used_at <= moment(:now) - :step_s, TRUE) AS is_to_be_noted
FROM api_keys k JOIN users u ON u.id = k.owner
WHERE k.secret_hash = :secret_hash AND NOT u.disabled;

-- name: alive
-- Those of these that are keys of enabled users.
SELECT k.secret_hash
FROM api_keys k JOIN users u ON u.id = k.owner
WHERE k.secret_hash = ANY (:secret_hashes) AND NOT u.disabled;

-- name: use
-- Notes when a key was last used. Nobody is harmed if a crash forgets it.
WITH hasty AS (SELECT set_config('synchronous_commit', 'off', TRUE))
UPDATE api_keys SET last_used_at = :now FROM hasty WHERE owner = :owner AND id = :id;
