-- Turns: admission, and what is written under an epoch. An open turn is queued or running.

-- name: by_key
-- The turn that an owner began under a key.
SELECT * FROM whole_turns WHERE owner = :owner AND key = :key;

-- name: by_reply
-- The owner's turn.
SELECT * FROM whole_turns WHERE owner = :owner AND reply_id = :reply_id;

-- name: held
-- The open turn, if this epoch is still its epoch.
SELECT * FROM whole_turns
WHERE owner = :owner AND reply_id = :reply_id AND epoch = :epoch AND status IN ('queued', 'running');

-- name: noted
-- What a note adds to, if this epoch is still the open turn's epoch.
SELECT conversation_id, notices FROM turns
WHERE owner = :owner AND reply_id = :reply_id AND epoch = :epoch AND status IN ('queued', 'running');

-- name: note
-- Who answers.
UPDATE turns SET
  attempt = :attempt, model = :model, reason = :reason, replica = :replica,
  request_id = :request_id, prompt_tokens = :prompt_tokens, summary_id = :summary_id,
  notices = :notices
WHERE owner = :owner AND reply_id = :reply_id;

-- name: open_of_owner
-- An owner's open turns, oldest first: what they hold, and what can be in the way of another.
SELECT reply_id, lane, reserved, answer_tokens, budgets, conversation_id, user_message_id, parent_id
FROM turns
WHERE owner = :owner AND status IN ('queued', 'running')
ORDER BY created_at, reply_id;

-- name: goes_on
-- Whether something was said below the reply that was begun under a key.
SELECT 1 FROM turns t
JOIN messages m
  ON m.owner = t.owner AND m.conversation_id = t.conversation_id AND m.parent_id = t.reply_id
WHERE t.owner = :owner AND t.key = :key
LIMIT 1;

-- name: balances
-- What an owner had used of each budget at the last settlement.
SELECT budget, used, at_ms, size, refill_ms FROM balances WHERE owner = :owner;

-- name: door
-- The owner's row, and of what a new turn would belong to: whether the account was closed, whether
-- what was begun under the key was deleted, the moves of the conversation (NULL: it is not there),
-- and the number of its newest message.
SELECT
  (SELECT ledger_ms FROM doors WHERE owner = :owner) AS ledger_ms,
  EXISTS (SELECT 1 FROM departed WHERE id = :owner) AS has_left,
  EXISTS (
    SELECT 1 FROM deleted_keys
    WHERE owner = :owner AND conversation_id = :conversation_id AND key_mark = :key_mark
  ) AS was_deleted,
  (SELECT moves FROM conversations WHERE owner = :owner AND id = :conversation_id) AS moves,
  (
    SELECT coalesce(max(seq), 0) FROM messages
    WHERE owner = :owner AND conversation_id = :conversation_id
  ) AS last_seq;

-- name: ledger
-- The latest moment at which the owner's ledger was looked at or written.
SELECT ledger_ms FROM doors WHERE owner = :owner;

-- name: add
-- A new turn.
INSERT INTO turns (
  owner, reply_id, key, body_sha, kind, plan, lane, requested, answer_tokens, reserved, sampling,
  status, epoch, attempt, created_at, budgets, abandon_s, conversation_id, thread, user_message_id,
  parent_id, prompt, notices,
  lease_until, followed_at, model, reason, replica, request_id, prompt_tokens, finished_at, finish,
  text, input_tokens, cached_tokens, output_tokens, charged, refusal, failure, last_event_id,
  stop_reason, difficulty, awaited, summary_id, rank
) VALUES (
  :owner, :reply_id, :key, :body_sha, :kind, :plan, :lane, :requested, :answer_tokens, :reserved,
  :sampling, :status, :epoch, :attempt, :created_at, :budgets, :abandon_s, :conversation_id,
  :thread, :user_message_id, :parent_id, :prompt, :notices, :lease_until, :followed_at, :model, :reason, :replica,
  :request_id, :prompt_tokens, :finished_at, :finish, :text, :input_tokens, :cached_tokens,
  :output_tokens, :charged, :refusal, :failure, :last_event_id, :stop_reason, :difficulty,
  :awaited, :summary_id, :rank
);

-- name: rewrite
-- Every field of a turn that can change; its ids and its body can't.
UPDATE turns SET
  plan = :plan, lane = :lane, requested = :requested, answer_tokens = :answer_tokens,
  reserved = :reserved, sampling = :sampling, status = :status, epoch = :epoch,
  attempt = :attempt, created_at = :created_at, budgets = :budgets, abandon_s = :abandon_s,
  prompt = :prompt, notices = :notices,
  lease_until = :lease_until, followed_at = :followed_at, model = :model, reason = :reason,
  replica = :replica, request_id = :request_id, prompt_tokens = :prompt_tokens,
  finished_at = :finished_at, finish = :finish, text = :text, input_tokens = :input_tokens,
  cached_tokens = :cached_tokens, output_tokens = :output_tokens, charged = :charged,
  refusal = :refusal, failure = :failure, last_event_id = :last_event_id,
  stop_reason = :stop_reason, difficulty = :difficulty, awaited = :awaited,
  summary_id = :summary_id
WHERE owner = :owner AND reply_id = :reply_id;

-- name: finish
-- What the end of a turn changes.
UPDATE turns SET
  status = :status, attempt = :attempt, notices = :notices, budgets = :budgets,
  abandon_s = :abandon_s, lease_until = :lease_until, finished_at = :finished_at, finish = :finish,
  text = :text, input_tokens = :input_tokens, cached_tokens = :cached_tokens,
  output_tokens = :output_tokens, charged = :charged, refusal = :refusal, failure = :failure,
  last_event_id = :last_event_id
WHERE owner = :owner AND reply_id = :reply_id;

-- name: settle
-- What an ended run cost, in numbers only.
INSERT INTO settlements (
  owner, reply_id, epoch, settled_ms, charged, input_tokens, cached_tokens, output_tokens, plan,
  model, budgets
) VALUES (
  :owner, :reply_id, :epoch, :settled_ms, :charged, :input_tokens, :cached_tokens, :output_tokens,
  :plan, :model, :budgets
);

-- name: pass
-- Passes the owner's door at a moment of the ledger, which never goes back.
INSERT INTO doors (owner, ledger_ms) VALUES (:owner, :ledger_ms)
ON CONFLICT (owner) DO UPDATE SET ledger_ms = max(ledger_ms, excluded.ledger_ms);

-- name: put_balance
-- What is used of a budget after a settlement.
INSERT INTO balances (owner, budget, used, at_ms, size, refill_ms)
VALUES (:owner, :budget, :used, :at_ms, :size, :refill_ms)
ON CONFLICT (owner, budget) DO UPDATE SET
  used = excluded.used, at_ms = excluded.at_ms, size = excluded.size,
  refill_ms = excluded.refill_ms;
