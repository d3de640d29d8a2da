-- Adds a batch of entries to a reply's log, for the holder of its fence alone, and publishes it.
-- KEYS: head, entries. ARGV: epoch, attempt, first number, last number (0: no entries), batch,
-- milliseconds to keep it (0: as before). Answers done, stale or missing.
local epoch, first, last = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
local head = redis.call('HMGET', KEYS[1], 'fence', 'attempt', 'last', 'origin')
if not head[1] then
  return 'missing'
end
if tonumber(head[1]) > epoch then
  return 'stale'
end
-- After a failover nobody knows what was not copied in time, nor whose fence: the owner must ask.
if head[4] ~= string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') then
  return 'missing'
end
if head[1] ~= ARGV[1] or head[2] ~= ARGV[2] then
  return 'stale'
end
if last == 0 then
  return 'done'
end
local held = tonumber(head[3])
if first > held + 1 then
  return 'missing'
end
local id = ARGV[4] .. '-0'
if last == held then
  -- A writer that did not hear the answer asks again.
  local ending = ''
  for _, batch in ipairs(redis.call('XRANGE', KEYS[2], ARGV[3] .. '-0', '+')) do
    ending = ending .. batch[2][2]
  end
  return string.sub(ending, -#ARGV[5]) == ARGV[5] and 'done' or 'stale'
end
if first <= held then
  return 'stale'
end
if held == 0 then
  redis.call('XADD', KEYS[2], id, 'e', ARGV[5])
elseif not redis.call('XADD', KEYS[2], 'NOMKSTREAM', id, 'e', ARGV[5]) then
  return 'missing'
end
redis.call('HSET', KEYS[1], 'last', ARGV[4])
if ARGV[6] ~= '0' then
  redis.call('PEXPIRE', KEYS[1], ARGV[6])
  redis.call('PEXPIRE', KEYS[2], ARGV[6])
end
redis.call('SPUBLISH', KEYS[1], ARGV[2] .. ' ' .. ARGV[4] .. '\n' .. ARGV[5])
return 'done'
