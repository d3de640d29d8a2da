-- The ledger's maintenance: balances as they follow from the settlements.

-- name: owners
-- Everybody who was ever settled, by id.
SELECT DISTINCT owner FROM settlements WHERE owner > :after ORDER BY owner LIMIT :rows;

-- name: lock
-- The owner's row: nothing of him is settled until the transaction ends.
SELECT ledger_ms FROM doors WHERE owner = :owner FOR UPDATE;

-- name: settlements
-- What an owner was ever charged for, oldest first.
SELECT settled_ms, input_tokens, cached_tokens, output_tokens, budgets FROM settlements
WHERE owner = :owner
ORDER BY settled_ms;

-- name: balances
-- What an owner had used of each budget at the last settlement.
SELECT budget, used, at_ms, size, refill_ms FROM balances WHERE owner = :owner;

-- name: put
-- What is used of a budget by the settlements.
INSERT INTO balances (owner, budget, used, at_ms, size, refill_ms)
VALUES (:owner, :budget, :used, :at_ms, :size, :refill_ms)
ON CONFLICT (owner, budget) DO UPDATE SET used = excluded.used, at_ms = excluded.at_ms,
  size = excluded.size, refill_ms = excluded.refill_ms;

-- name: forget
-- Balances that no settlement stands behind.
DELETE FROM balances WHERE owner = :owner AND budget = ANY (:names);
