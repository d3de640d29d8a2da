-- Writes all of a reply's log again that is lost, or whose end or fence may be, for its live owner.
-- KEYS: head, entries. ARGV: epoch, attempt, last number, batch, milliseconds to keep it.
-- Answers done or stale.
local epoch, attempt, last = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local head = redis.call('HMGET', KEYS[1], 'fence', 'attempt', 'last', 'origin')
local origin = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if head[1] then
  if tonumber(head[1]) > epoch or tonumber(head[2]) > attempt then
    return 'stale'
  end
  local held = tonumber(head[3])
  if head[4] == origin and (held == 0 or redis.call('EXISTS', KEYS[2]) == 1) then
    if head[1] ~= ARGV[1] or head[2] ~= ARGV[2] or held > last then
      return 'stale'
    end
  end
end
redis.call('DEL', KEYS[2])
if last > 0 then
  redis.call('XADD', KEYS[2], ARGV[3] .. '-0', 'e', ARGV[4])
  redis.call('PEXPIRE', KEYS[2], ARGV[5])
end
redis.call(
  'HSET', KEYS[1], 'fence', ARGV[1], 'attempt', ARGV[2], 'last', ARGV[3], 'origin', origin
)
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('SPUBLISH', KEYS[1], '')
return 'done'
