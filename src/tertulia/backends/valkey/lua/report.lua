-- Notes a replica's report with the server's time, in place of its last.
-- KEYS: registry. ARGV: name, incarnation, report, milliseconds to keep it.
local now = redis.call('TIME')
local ms = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000))
redis.call('HSET', KEYS[1], ARGV[1], ms .. ' ' .. ARGV[2] .. '\n' .. ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
