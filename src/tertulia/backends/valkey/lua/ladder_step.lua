-- Takes one step of the ladder, unless somebody did since it was seen or the last is not long ago.
-- KEYS: ladder. ARGV: the rung and the changes that were seen, the rung to be on, the top rung,
-- milliseconds between two steps.
-- Answers rung, milliseconds held, changes.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local head = redis.call('HMGET', KEYS[1], 'rung', 'at', 'changes')
local rung, changes = tonumber(head[1] or 0), tonumber(head[3] or 0)
local at, to = tonumber(head[2]), tonumber(ARGV[3])
local stamp = string.format('%.0f', now)
if not at or at > now then
  at = now
  redis.call('HSET', KEYS[1], 'at', stamp)
end
local is_as_seen = rung == tonumber(ARGV[1]) and changes == tonumber(ARGV[2])
local is_next = to >= 0 and to <= tonumber(ARGV[4]) and math.abs(to - rung) == 1
if is_as_seen and is_next and now - at >= tonumber(ARGV[5]) then
  rung, at, changes = to, now, changes + 1
  redis.call('HSET', KEYS[1], 'rung', rung, 'at', stamp, 'changes', changes)
end
return {rung, now - at, changes}
