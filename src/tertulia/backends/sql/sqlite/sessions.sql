-- Sessions and one-time sign-in links, by the hash of their secret.

-- name: clear_sessions
-- Removes expired sessions.
DELETE FROM sessions WHERE expires_at <= :now;

-- name: open
-- A session begins.
INSERT INTO sessions (token_hash, user_id, created_at, expires_at)
VALUES (:token_hash, :user_id, :now, :expires_at)
ON CONFLICT (token_hash) DO UPDATE
SET user_id = :user_id, created_at = :now, expires_at = :expires_at;

-- name: find
-- The live session of an enabled user.
SELECT u.*, :now - s.created_at AS age_s
FROM sessions s JOIN users u ON u.id = s.user_id
WHERE s.token_hash = :token_hash AND s.expires_at > :now AND u.disabled = 0;

-- name: alive
-- Those of these that are live sessions of enabled users.
SELECT s.token_hash
FROM sessions s JOIN users u ON u.id = s.user_id
WHERE s.token_hash IN (SELECT value FROM json_each(:token_hashes))
  AND s.expires_at > :now AND u.disabled = 0;

-- name: list
-- The live sessions of an enabled user, the newest first.
SELECT s.token_hash, s.created_at, s.expires_at
FROM sessions s JOIN users u ON u.id = s.user_id
WHERE s.user_id = :user_id AND s.expires_at > :now AND u.disabled = 0
ORDER BY s.created_at DESC, s.token_hash LIMIT :limit;

-- name: close
-- Closes by token, by user, or by both.
DELETE FROM sessions
WHERE (:token_hash IS NOT NULL OR :user_id IS NOT NULL)
  AND (:token_hash IS NULL OR token_hash = :token_hash)
  AND (:user_id IS NULL OR user_id = :user_id);

-- name: clear_links
-- Removes this user's links and all that have expired.
DELETE FROM links WHERE user_id = :user_id OR expires_at <= :now;

-- name: add_link
-- A one-time link.
INSERT INTO links (token_hash, user_id, created_at, expires_at)
VALUES (:token_hash, :user_id, :now, :expires_at);

-- name: redeem
-- Takes a live link of an enabled user away.
DELETE FROM links
WHERE token_hash = :token_hash AND expires_at > :now
  AND user_id IN (SELECT id FROM users WHERE disabled = 0)
RETURNING user_id;
