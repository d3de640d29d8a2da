-- Takes a reply's log for an epoch and reads all of it, in one step; refuses an older epoch.
-- KEYS: head, entries. ARGV: epoch, attempt, milliseconds to keep it.
-- Answers nothing, or the attempt, the last number and the batches.
local epoch, attempt = tonumber(ARGV[1]), tonumber(ARGV[2])
local head = redis.call('HMGET', KEYS[1], 'fence', 'attempt', 'last', 'origin')
if head[1] and tonumber(head[1]) > epoch then
  return false
end
local origin = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local batches = redis.call('XRANGE', KEYS[2], '-', '+')
-- After a failover nobody knows what was not copied in time; a full server may evict one key alone.
local is_whole = head[1] and head[4] == origin and (head[3] == '0' or #batches > 0)
if is_whole and attempt <= tonumber(head[2]) then
  redis.call('HSET', KEYS[1], 'fence', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
  return {tonumber(head[2]), tonumber(head[3]), batches}
end
if head[1] then
  attempt = math.max(attempt, tonumber(head[2])) + 1
elseif epoch ~= 1 then
  attempt = attempt + 1
end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'attempt', attempt, 'last', 0, 'origin', origin)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SPUBLISH', KEYS[1], attempt .. ' 0\n')
return {attempt, 0, {}}
