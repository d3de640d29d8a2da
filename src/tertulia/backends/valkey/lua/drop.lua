-- Deletes a reply's log, and tells its followers; the grave of a deleted turn stays.
-- KEYS: head, entries. Answers how many logs there were.
local attempt = redis.call('HGET', KEYS[1], 'attempt')
if not attempt or attempt == '0' then
  return 0
end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('SPUBLISH', KEYS[1], '')
return 1
