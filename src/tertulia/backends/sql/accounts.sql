-- Users; `name_key` is the name without regard to case.

-- name: add
-- A new user, unless the name is taken.
INSERT INTO users (id, name, name_key, role, plan, password_hash, created_at, disabled)
VALUES (:id, :name, :name_key, :role, :plan, :password_hash, :created_at, :disabled)
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
SET role = :role, plan = :plan, password_hash = :password_hash, disabled = :disabled
WHERE id = :id;

-- name: count
-- How many users there are.
SELECT count(*) FROM users;
