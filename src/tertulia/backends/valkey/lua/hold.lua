-- Sets a replica aside, unless too many are already. Answers 1 if it is, 0 if not.
-- KEYS: holds. ARGV: name, how many at most.
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[2]) and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], '1')
return 1
