-- Turns: admission, and what is written under an epoch. A turn is open while it is in `open_turns`.

-- name: by_key
-- The turn that an owner began under a key.
SELECT * FROM whole_turns WHERE owner = :owner AND key = :key;

-- name: by_reply
-- The owner's turn.
SELECT * FROM whole_turns WHERE owner = :owner AND reply_id = :reply_id;

-- name: door
-- All that admission decides by, in one row: the turn of this key, the conversation, the messages
-- that are named, what the owner has used and holds, and how often the door was passed before.
SELECT known.*, here.now, door.passes, door.ledger_ms,
  EXISTS (SELECT 1 FROM departed WHERE id = :owner) AS has_left,
  EXISTS (
    SELECT 1 FROM conversations WHERE owner = :owner AND id = :conversation_id
  ) AS has_conversation,
  EXISTS (
    SELECT 1 FROM deleted_keys
    WHERE owner = :owner AND conversation_id = :conversation_id AND key_mark = :key_mark
  ) AS was_deleted,
  known.final_status = 'failed' AND EXISTS (
    SELECT 1 FROM messages m
    WHERE m.owner = :owner AND m.conversation_id = known.conversation_id
      AND coalesce(m.parent_id, '') = known.reply_id
  ) AS goes_on,
  EXISTS (SELECT 1 FROM turns WHERE owner = :owner AND reply_id = :reply_id) AS is_taken,
  (
    SELECT coalesce(max(seq), 0) FROM messages
    WHERE owner = :owner AND conversation_id = :conversation_id
  ) AS last_seq,
  (
    SELECT json_agg(json_build_array(m.id, m.role, m.conversation_id, m.parent_id))
    FROM messages m
    WHERE m.owner = :owner AND m.id IN (:user_message_id, :parent_id, known.user_message_id)
  ) AS messages,
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
        'budgets', budgets, 'conversation_id', conversation_id,
        'user_message_id', user_message_id, 'parent_id', parent_id
      )
      ORDER BY created_at, reply_id
    )
    FROM open_turns WHERE owner = :owner
  ) AS open
FROM (SELECT moment(:now) AS now) AS here
LEFT JOIN doors door ON door.owner = :owner
LEFT JOIN whole_turns known ON known.owner = :owner AND known.key = :key;

-- name: pass
-- Passes the owner's door: until the transaction ends nobody else does.
INSERT INTO doors (owner, passes, ledger_ms) VALUES (:owner, 1, 0)
ON CONFLICT (owner) DO UPDATE SET passes = doors.passes + 1;

-- name: begin
-- A new turn, open or ended at the door, with its message and its reply at the head of their
-- conversation; no row and nothing of it if somebody passed the door since it was looked through.
WITH passed AS (
  INSERT INTO doors (owner, passes, ledger_ms) VALUES (:owner, 1, :ledger_ms)
  ON CONFLICT (owner) DO UPDATE
  SET passes = doors.passes + 1, ledger_ms = greatest(doors.ledger_ms, excluded.ledger_ms)
  WHERE doors.passes = :passes
  RETURNING owner
), begun AS (
  INSERT INTO turns (
    owner, reply_id, key, body_sha, kind, plan, lane, requested, answer_tokens, reserved, sampling,
    attempt, created_at, conversation_id, thread, user_message_id, prompt, notices, prompt_tokens,
    model, reason, finished_at, finish, text, input_tokens, cached_tokens, output_tokens, charged,
    refusal, last_event_id, final_status, final_epoch, final_followed_at, difficulty, awaited
  )
  SELECT owner, :reply_id, :key, :body_sha, :kind, :plan, :lane, :requested, :answer_tokens,
    :reserved, :sampling, :attempt, :created_at, :conversation_id, :thread, :user_message_id, :prompt,
    :notices, :prompt_tokens, :model, :reason, :finished_at, :finish, :text, 0, 0, 0, 0, :refusal,
    :last_event_id,
    :final_status, :final_epoch, :final_followed_at, :difficulty, :awaited
  FROM passed
  RETURNING owner, reply_id
), standing AS (
  SELECT tag, rank FROM standing_of(:owner, :lane) WHERE CAST(:final_status AS TEXT) IS NULL
), waiting AS (
  INSERT INTO open_turns (
    owner, reply_id, conversation_id, user_message_id, parent_id, plan, lane, rank, cost,
    created_at, reserved, answer_tokens, budgets, abandon_s, status, epoch, followed_at, awaited
  )
  SELECT owner, reply_id, :conversation_id, :user_message_id, :parent_id, :plan, :lane,
    standing.rank, :cost, :created_at, :reserved, :answer_tokens, :budgets, :abandon_s, :status,
    :epoch, :followed_at, :awaited
  FROM begun, standing
), tagged AS (
  INSERT INTO tags (owner, lane, tag)
  SELECT owner, :lane, standing.rank + :cost FROM begun, standing
  -- What ended since it was looked at has lowered the tag.
  ON CONFLICT (owner, lane) DO UPDATE SET
    tag = excluded.tag + tags.tag - (SELECT standing.tag FROM standing)
), next_move AS (
  SELECT coalesce(max(moves), 0) + 1 AS number FROM conversations
  WHERE owner = :owner AND id = :conversation_id
), asked AS (
  INSERT INTO messages (
    owner, conversation_id, seq, id, parent_id, role, content, folded, signature, tokens, tokenizer,
    status, created_at
  )
  SELECT owner, :conversation_id, :asked_seq, :user_message_id, :parent_id, 'user', :content,
    :folded, :signature, :content_tokens, :tokenizer, 'completed', :created_at
  FROM begun
  WHERE :kind = 'message'
), reply AS (
  INSERT INTO messages (
    owner, conversation_id, seq, id, parent_id, shown, role, content, folded, signature, tokens,
    tokenizer, status, created_at, model, reason, requested, finish, notices, last_event_id
  )
  SELECT owner, :conversation_id, :reply_seq, reply_id, :user_message_id, next_move.number,
    'assistant', :reply_content, :reply_folded, :reply_signature, :reply_tokens, :reply_tokenizer,
    :status, :created_at, :model, :reason, :requested, :finish, :notices, nullif(:last_event_id, 0)
  FROM begun, next_move
  WHERE CAST(:conversation_id AS TEXT) IS NOT NULL
), placed AS (
  UPDATE conversations
  SET head_message_id = begun.reply_id, updated_at = :created_at, moves = moves + 1,
      folded = CASE WHEN title = '' THEN :folded_title ELSE folded END,
      title = CASE WHEN title = '' THEN :title ELSE title END
  FROM begun
  WHERE conversations.owner = :owner AND conversations.id = :conversation_id
)
SELECT reply_id FROM begun;

-- name: rerun
-- A failed turn is open again, or refused, with an empty reply at the head of its conversation.
WITH looked AS (
  UPDATE doors SET ledger_ms = :ledger_ms WHERE owner = :owner
), begun AS (
  UPDATE turns SET
    plan = :plan, lane = :lane, requested = :requested, answer_tokens = :answer_tokens,
    reserved = :reserved, sampling = :sampling, attempt = :attempt, created_at = :created_at,
    prompt = :prompt, notices = :notices, model = NULL, reason = :reason, replica = NULL,
    request_id = NULL, prompt_tokens = :prompt_tokens, summary_id = NULL,
    finished_at = :finished_at, finish = :finish, text = '',
    input_tokens = 0, cached_tokens = 0, output_tokens = 0, charged = 0, refusal = :refusal,
    failure = NULL, last_event_id = :last_event_id, final_status = :final_status,
    final_epoch = :final_epoch, final_followed_at = :final_followed_at, final_stop_reason = NULL,
    difficulty = :difficulty, awaited = :awaited
  WHERE owner = :owner AND reply_id = :reply_id
), standing AS (
  SELECT tag, rank FROM standing_of(:owner, :lane) WHERE CAST(:final_status AS TEXT) IS NULL
), waiting AS (
  INSERT INTO open_turns (
    owner, reply_id, conversation_id, user_message_id, parent_id, plan, lane, rank, cost,
    created_at, reserved, answer_tokens, budgets, abandon_s, status, epoch, followed_at, awaited
  )
  SELECT :owner, :reply_id, :conversation_id, :user_message_id, :parent_id, :plan, :lane,
    standing.rank, :cost, :created_at, :reserved, :answer_tokens, :budgets, :abandon_s, :status,
    :epoch, :followed_at, :awaited
  FROM standing
), tagged AS (
  INSERT INTO tags (owner, lane, tag)
  SELECT :owner, :lane, standing.rank + :cost FROM standing
  ON CONFLICT (owner, lane) DO UPDATE SET
    tag = excluded.tag + tags.tag - (SELECT standing.tag FROM standing)
), shown AS (
  UPDATE messages SET
    content = '', folded = '', signature = CAST(0 AS BIT(1024)), tokens = 0, tokenizer = '',
    ids = NULL, status = :status,
    model = NULL, requested = :requested, reason = :reason, finish = :finish, notices = :notices,
    failure = NULL, last_event_id = nullif(:last_event_id, 0), shown = (
      SELECT c.moves + 1 FROM conversations c WHERE c.owner = :owner AND c.id = :conversation_id
    )
  WHERE owner = :owner AND id = :reply_id
)
UPDATE conversations
SET head_message_id = :reply_id, updated_at = :created_at, moves = moves + 1,
    folded = CASE WHEN title = '' THEN :folded_title ELSE folded END,
    title = CASE WHEN title = '' THEN :title ELSE title END
WHERE owner = :owner AND id = :conversation_id;

-- name: note
-- Who answers, on the turn, its reply and (if pinned) its conversation, under an epoch.
WITH held AS (
  UPDATE open_turns SET model = :model
  WHERE owner = :owner AND reply_id = :reply_id AND epoch = :epoch
  RETURNING reply_id
), noted AS (
  UPDATE turns t SET
    attempt = :attempt, model = :model, reason = :reason, replica = :replica,
    request_id = :request_id, prompt_tokens = :prompt_tokens, summary_id = :summary_id,
    notices = joined(t.notices, :notices)
  FROM held
  WHERE t.owner = :owner AND t.reply_id = held.reply_id
  RETURNING t.reply_id, t.conversation_id, t.model, t.reason, t.notices
), shown AS (
  UPDATE messages m SET model = noted.model, reason = noted.reason, notices = noted.notices
  FROM noted
  WHERE m.owner = :owner AND m.id = noted.reply_id
), pinned AS (
  UPDATE conversations c SET model = noted.model
  FROM noted
  WHERE :pins AND c.owner = :owner AND c.id = noted.conversation_id
)
SELECT reply_id FROM noted;

-- name: finish
-- Ends an open turn under an epoch: whoever takes its open row away writes all the rest. First the
-- owner's row is locked: so settlements have an order, and each sees the balances of the last.
WITH door AS (
  SELECT greatest(ledger_ms + 1, CAST(floor(moment(:now) * 1000) AS BIGINT)) AS settled_ms
  FROM doors
  WHERE owner = :owner
  FOR UPDATE
), ended AS (
  DELETE FROM open_turns o USING door
  WHERE o.owner = :owner AND o.reply_id = :reply_id AND o.epoch = :epoch
    AND o.status = ANY (:from)
    AND CAST(:cached_tokens AS BIGINT) BETWEEN 0 AND CAST(:input_tokens AS BIGINT)
    AND CAST(:input_tokens AS BIGINT) <= o.reserved - o.answer_tokens
    AND CAST(:output_tokens AS BIGINT) BETWEEN 0 AND o.answer_tokens
  RETURNING o.reply_id, o.lane, o.cost, o.epoch, o.followed_at, o.stop_reason, o.budgets,
    door.settled_ms
), tagged AS (
  UPDATE tags SET tag = tags.tag - greatest(0, ended.cost - CAST(:charged AS BIGINT))
  FROM ended
  WHERE tags.owner = :owner AND tags.lane = ended.lane
), final AS (
  UPDATE turns t SET
    attempt = :attempt, notices = joined(t.notices, :notices), finished_at = moment(:now),
    finish = :finish, text = CASE WHEN t.conversation_id IS NULL THEN :text ELSE '' END,
    input_tokens = :input_tokens, cached_tokens = :cached_tokens, output_tokens = :output_tokens,
    charged = :charged, refusal = :refusal, failure = :failure, last_event_id = :last_event_id,
    final_status = :status, final_epoch = ended.epoch, final_followed_at = ended.followed_at,
    final_stop_reason = ended.stop_reason
  FROM ended
  WHERE t.owner = :owner AND t.reply_id = ended.reply_id
  RETURNING t.reply_id, t.plan, t.model, t.reason, t.notices, t.final_epoch, ended.budgets,
    ended.settled_ms
), looked AS (
  UPDATE doors SET ledger_ms = final.settled_ms FROM final WHERE doors.owner = :owner
), shown AS (
  UPDATE messages m SET
    content = :text, folded = :folded, signature = :signature, tokens = :tokens, tokenizer = :tokenizer, ids = :ids,
    status = :status, model = final.model, reason = final.reason, finish = :finish,
    notices = final.notices, failure = :failure, last_event_id = nullif(:last_event_id, 0)
  FROM final
  WHERE m.owner = :owner AND m.id = final.reply_id
), settled AS (
  INSERT INTO settlements (
    owner, reply_id, epoch, settled_ms, charged, input_tokens, cached_tokens, output_tokens, plan,
    model, budgets
  )
  SELECT :owner, reply_id, final_epoch, settled_ms, :charged, :input_tokens, :cached_tokens,
    :output_tokens, plan, model, budgets
  FROM final
), charged AS (
  INSERT INTO balances AS b (owner, budget, used, at_ms, size, refill_ms)
  SELECT :owner, due.budget, due.charge, final.settled_ms, due.size, due.refill_ms
  FROM final, charges_of(final.budgets, :charges) AS due
  ON CONFLICT (owner, budget) DO UPDATE SET
    used = excluded.used
      + left_of(b.used, b.size, b.refill_ms, excluded.at_ms - b.at_ms),
    at_ms = excluded.at_ms, size = excluded.size, refill_ms = excluded.refill_ms
)
SELECT reply_id FROM final;

-- name: settle
-- What a run cost that is deleted while it is open, in the transaction that passed the door.
WITH door AS (
  UPDATE doors
  SET ledger_ms = greatest(ledger_ms + 1, CAST(floor(moment(:now) * 1000) AS BIGINT))
  WHERE owner = :owner
  RETURNING ledger_ms AS settled_ms
), settled AS (
  INSERT INTO settlements (
    owner, reply_id, epoch, settled_ms, charged, input_tokens, cached_tokens, output_tokens, plan,
    model, budgets
  )
  SELECT :owner, :reply_id, :epoch, settled_ms, :charged, :input_tokens, :cached_tokens,
    :output_tokens, :plan, :model, :budgets
  FROM door
)
INSERT INTO balances AS b (owner, budget, used, at_ms, size, refill_ms)
SELECT :owner, due.budget, due.charge, door.settled_ms, due.size, due.refill_ms
FROM door, charges_of(:budgets, :charges) AS due
ON CONFLICT (owner, budget) DO UPDATE SET
  used = excluded.used
    + left_of(b.used, b.size, b.refill_ms, excluded.at_ms - b.at_ms),
  at_ms = excluded.at_ms, size = excluded.size, refill_ms = excluded.refill_ms;

-- name: seize
-- A stop's claim, whatever the lease. The last line reads the newest note, as in `claim`.
WITH taken AS (
  UPDATE open_turns
  SET epoch = epoch + 1, lease_until = moment(:now) + :lease_s, stop_reason = :reason
  WHERE owner = :owner AND reply_id = :reply_id
  RETURNING reply_id, status, epoch, lease_until, followed_at, stop_reason, budgets, abandon_s
)
SELECT t.*, t.text AS reply_text, taken.budgets, taken.abandon_s,
  taken.status, taken.epoch, taken.lease_until, taken.followed_at, taken.stop_reason
FROM taken JOIN turns t ON t.owner = :owner AND t.reply_id = taken.reply_id
FOR UPDATE OF t;
