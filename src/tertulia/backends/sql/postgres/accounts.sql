-- Users; `name_key` is the name without regard to case.

-- name: add
-- A new user, unless the name is taken, or was by somebody who left.
INSERT INTO users (id, name, name_key, role, plan, password_hash, created_at, disabled, evaluation)
SELECT :id, :name, :name_key, :role, :plan, :password_hash, :created_at, :disabled, :evaluation
WHERE NOT EXISTS (SELECT 1 FROM departed WHERE name_mark = :name_mark)
ON CONFLICT (name_key) DO NOTHING
RETURNING id;

-- name: find
-- The user of an id.
SELECT * FROM users WHERE id = :id;

-- name: find_to_change
-- The same, held until the transaction ends.
SELECT * FROM users WHERE id = :id FOR UPDATE;

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
SELECT count(*) AS users FROM users;

-- name: spent
-- What an owner has used and holds now.
SELECT here.now, door.ledger_ms,
  (
    SELECT json_agg(
      json_build_object(
        'budget', budget, 'used', used, 'at_ms', at_ms, 'size', size, 'refill_ms', refill_ms
      )
    )
    FROM balances WHERE owner = :owner
  ) AS balances,
  (
    SELECT json_agg(
      json_build_object(
        'reply_id', reply_id, 'lane', lane, 'reserved', reserved, 'answer_tokens', answer_tokens,
        'budgets', budgets
      )
      ORDER BY created_at, reply_id
    )
    FROM open_turns WHERE owner = :owner
  ) AS open
FROM (SELECT moment(:now) AS now) AS here
LEFT JOIN doors door ON door.owner = :owner;
