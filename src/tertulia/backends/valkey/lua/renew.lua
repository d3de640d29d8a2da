-- Holds leases of a name for another time, also those that were lost: they are in use.
-- KEYS: the name's leases by their ends. ARGV: milliseconds that they last, leases.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local till = string.format('%.0f', now + tonumber(ARGV[1]))
for i = 2, #ARGV do
  redis.call('ZADD', KEYS[1], till, ARGV[i])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return #ARGV - 1
