-- The conversations whose owners let them be used to judge models and changes.

-- name: usable
-- Those after one, by owner and id.
SELECT c.*, NULL AS active
FROM users u JOIN conversations c ON c.owner = u.id
WHERE u.evaluation = 1 AND u.disabled = 0 AND u.id >= :owner AND (c.owner, c.id) > (:owner, :id)
ORDER BY u.id, c.id
LIMIT :rows;

-- name: is_usable
-- A row if this one may be used now.
SELECT 1
FROM users u JOIN conversations c ON c.owner = u.id
WHERE u.evaluation = 1 AND u.disabled = 0 AND c.owner = :owner AND c.id = :id;
