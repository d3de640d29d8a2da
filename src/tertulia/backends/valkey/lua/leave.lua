-- Forgets a replica, unless another incarnation of it has reported since.
-- KEYS: registry. ARGV: name, incarnation.
local noted = redis.call('HGET', KEYS[1], ARGV[1])
if noted and string.match(noted, '^%d+ ([^\n]*)\n') == ARGV[2] then
  return redis.call('HDEL', KEYS[1], ARGV[1])
end
return 0
