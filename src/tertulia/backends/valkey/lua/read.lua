-- Reads a reply's log as it is at one moment: what is new to a reader, or all of it.
-- KEYS: head, entries. ARGV: the attempt and the last number that the reader has.
-- Answers nothing, or the attempt, the last number, the batches, and 1 if there may have been more.
local head = redis.call('HMGET', KEYS[1], 'attempt', 'last', 'origin')
if not head[1] or head[1] == '0' then
  return false
end
local last, after = tonumber(head[2]), tonumber(ARGV[2])
if last > 0 and redis.call('EXISTS', KEYS[2]) == 0 then
  return false
end
local from = '-'
if head[1] == ARGV[1] and after <= last then
  from = '(' .. ARGV[2] .. '-0'
end
local origin = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local in_doubt = head[3] ~= origin and 1 or 0
return {tonumber(head[1]), last, redis.call('XRANGE', KEYS[2], from, '+'), in_doubt}
