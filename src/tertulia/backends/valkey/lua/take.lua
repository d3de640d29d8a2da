-- Takes one of the places that a name may hold, unless it holds all of them.
-- A place beyond the longest time was noted by a server with another clock: nobody knows its end.
-- KEYS: the name's leases by their ends. ARGV: lease, limit, milliseconds that it lasts.
-- Answers -1 for taken, else in how many milliseconds one of the places ends.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local limit, lasts = tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now + lasts), '+inf')
local count = redis.call('ZCARD', KEYS[1])
if count >= limit and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  local first = redis.call('ZRANGE', KEYS[1], count - limit, count - limit, 'WITHSCORES')
  return tonumber(first[2]) - now
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now + lasts), ARGV[1])
redis.call('PEXPIRE', KEYS[1], lasts)
return -1
