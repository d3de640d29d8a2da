-- The ledger's maintenance: balances as they follow from the settlements.

-- name: owners
-- Everybody who was ever settled, by id.
SELECT DISTINCT owner FROM settlements WHERE owner > :after ORDER BY owner LIMIT :rows;

-- name: settlements
-- What an owner was ever charged for, oldest first.
SELECT settled_ms, input_tokens, cached_tokens, output_tokens, budgets FROM settlements
WHERE owner = :owner
ORDER BY settled_ms;

-- name: forget
-- Balances that no settlement stands behind; names is a JSON list.
DELETE FROM balances
WHERE owner = :owner AND budget IN (SELECT value FROM json_each(:names));
