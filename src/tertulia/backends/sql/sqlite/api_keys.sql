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
DELETE FROM api_keys WHERE owner = :owner AND id = :id;

-- name: by_secret
-- The key of a secret, if its user is enabled.
SELECT k.* FROM api_keys k JOIN users u ON u.id = k.owner
WHERE k.secret_hash = :secret_hash AND u.disabled = 0;

-- name: alive
-- Those of these that are keys of enabled users.
SELECT k.secret_hash
FROM api_keys k JOIN users u ON u.id = k.owner
WHERE k.secret_hash IN (SELECT value FROM json_each(:secret_hashes)) AND u.disabled = 0;

-- name: use
-- Notes when a key was last used.
UPDATE api_keys SET last_used_at = :now WHERE owner = :owner AND id = :id;
