-- Sessions and one-time sign-in links, by the hash of their secret.

-- name: open
-- A session begins, and expired ones are cleared away.
WITH expired AS (
  DELETE FROM sessions WHERE expires_at <= moment(:now) AND token_hash <> :token_hash
)
INSERT INTO sessions (token_hash, user_id, created_at, expires_at)
VALUES (:token_hash, :user_id, moment(:now), moment(:now) + :lasts_s)
ON CONFLICT (token_hash) DO UPDATE
SET user_id = excluded.user_id, created_at = excluded.created_at, expires_at = excluded.expires_at;

-- name: find
-- The live session of an enabled user.
SELECT u.*, moment(:now) - s.created_at AS age_s
FROM sessions s JOIN users u ON u.id = s.user_id
WHERE s.token_hash = :token_hash AND s.expires_at > moment(:now) AND NOT u.disabled;

-- name: alive
-- Those of these that are live sessions of enabled users.
SELECT s.token_hash
FROM sessions s JOIN users u ON u.id = s.user_id
WHERE s.token_hash = ANY (:token_hashes) AND s.expires_at > moment(:now) AND NOT u.disabled;

-- name: list
-- The live sessions of an enabled user, the newest first.
SELECT s.token_hash, s.created_at, s.expires_at
FROM sessions s JOIN users u ON u.id = s.user_id
WHERE s.user_id = :user_id AND s.expires_at > moment(:now) AND NOT u.disabled
ORDER BY s.created_at DESC, s.token_hash LIMIT :limit;

-- name: close
-- Closes by token, by user, or by both.
DELETE FROM sessions
WHERE (CAST(:token_hash AS TEXT) IS NOT NULL OR CAST(:user_id AS TEXT) IS NOT NULL)
  AND (:token_hash IS NULL OR token_hash = :token_hash)
  AND (:user_id IS NULL OR user_id = :user_id)
RETURNING token_hash;

-- name: add_link
-- A one-time link, after this user's others and all that have expired are gone.
WITH cleared AS (
  DELETE FROM links WHERE user_id = :user_id OR expires_at <= moment(:now)
)
INSERT INTO links (token_hash, user_id, created_at, expires_at)
VALUES (:token_hash, :user_id, moment(:now), moment(:now) + :lasts_s);

-- name: redeem
-- Takes a live link of an enabled user away; its user.
WITH taken AS (
  DELETE FROM links
  WHERE token_hash = :token_hash AND expires_at > moment(:now)
    AND user_id IN (SELECT id FROM users WHERE NOT disabled)
  RETURNING user_id
)
SELECT u.* FROM taken JOIN users u ON u.id = taken.user_id;
