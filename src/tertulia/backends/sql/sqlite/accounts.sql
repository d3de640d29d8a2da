-- Users; `name_key` is the name without regard to case.

-- name: add
-- A new user, unless the name is taken, or was by somebody who left.
INSERT INTO users (id, name, name_key, role, plan, password_hash, created_at, disabled, evaluation)
SELECT :id, :name, :name_key, :role, :plan, :password_hash, :created_at, :disabled, :evaluation
WHERE NOT EXISTS (SELECT 1 FROM departed WHERE name_mark = :name_mark)
ON CONFLICT (name_key) DO NOTHING;

-- name: find
-- The user of an id.
SELECT * FROM users WHERE id = :id;

-- name: by_name
-- The user of a name.
SELECT * FROM users WHERE name_key = :name_key;

-- name: change
-- The fields of a user that can change.
UPDATE users
SET role = :role, plan = :plan, password_hash = :password_hash, disabled = :disabled,
  evaluation = :evaluation
WHERE id = :id;

-- name: page
-- Users after one by their ids, of one plan or, if none is named, of all.
SELECT * FROM users
WHERE id > :after AND (:plan = '' OR plan = :plan)
ORDER BY id
LIMIT :rows;

-- name: count
-- How many users there are.
SELECT count(*) FROM users;
