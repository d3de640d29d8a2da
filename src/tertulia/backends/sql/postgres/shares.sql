-- Links to snapshots of branches, by the hash of their secret.

-- name: count
-- How many links an owner has.
SELECT count(*) AS shares FROM shares WHERE owner = :owner;

-- name: add
-- A new link, with the title that its conversation has now.
INSERT INTO shares (
  owner, id, conversation_id, leaf_id, path_messages, left_out, token_hash, title, created_at
)
SELECT owner, :id, id, :leaf_id, :path_messages, :left_out, :token_hash, title, moment(:now)
FROM conversations
WHERE owner = :owner AND id = :conversation_id
RETURNING *;

-- name: list
-- An owner's links, the newest first, of one conversation where it is named: then a row without a
-- link if it has none, and no row if it is not there.
SELECT s.*
FROM (
  SELECT 1 WHERE CAST(:conversation_id AS TEXT) IS NULL
  UNION ALL
  SELECT 1 FROM conversations WHERE owner = :owner AND id = :conversation_id
) AS place
LEFT JOIN shares s ON s.owner = :owner
  AND (CAST(:conversation_id AS TEXT) IS NULL OR s.conversation_id = :conversation_id)
ORDER BY s.created_at DESC, s.id DESC;

-- name: revoke
-- Removes an owner's own link.
DELETE FROM shares WHERE owner = :owner AND id = :id RETURNING id;

-- name: shown
-- Messages of a link after a place, from the root on, each with the link's title; one row without a
-- message if there are none; and no row if there is no link, its owner is disabled, or a message of
-- its branch is gone.
WITH RECURSIVE share AS (
  SELECT s.* FROM shares s JOIN users u ON u.id = s.owner
  WHERE s.token_hash = :token_hash AND NOT u.disabled
), path (place, id, parent_id) AS (
  SELECT share.path_messages, m.id, m.parent_id
  FROM share JOIN messages m ON m.owner = share.owner AND m.id = share.leaf_id
    AND m.conversation_id = share.conversation_id
  UNION ALL
  SELECT path.place - 1, m.id, m.parent_id
  FROM path CROSS JOIN share JOIN messages m ON m.owner = share.owner AND m.id = path.parent_id
    AND m.conversation_id = share.conversation_id
  WHERE path.place > 1
), page AS (
  SELECT path.place, m.role, m.content, m.model, m.status
  FROM path CROSS JOIN share JOIN messages m ON m.owner = share.owner AND m.id = path.id
  WHERE path.place > :after AND path.id <> ALL (share.left_out)
  ORDER BY path.place
  LIMIT :rows
)
SELECT share.title, share.created_at, page.*
FROM share LEFT JOIN page ON TRUE
WHERE EXISTS (SELECT 1 FROM path WHERE place = 1 AND parent_id IS NULL)
ORDER BY page.place;
