-- Notes what a process sees, and gives the ladder's foothold with what all see.
-- Old sights are forgotten, and so are those from the future: nobody knows their age.
-- KEYS: ladder. ARGV: name, sight, the limits of an age in milliseconds, of a sight in bytes, and of
-- sights, milliseconds to keep a ladder of which nobody tells.
-- Answers rung, milliseconds held, changes, sight, sight ...
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stamp = string.format('%.0f', now)
redis.call('HSET', KEYS[1], 'told:' .. ARGV[1], stamp .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
local head = redis.call('HMGET', KEYS[1], 'rung', 'at', 'changes')
local at = tonumber(head[2])
-- Another server's clock may be behind the one that noted the last step: then it is held from now on.
if not at or at > now then
  at = now
  redis.call('HSET', KEYS[1], 'at', stamp)
end
local answer = {tonumber(head[1] or 0), now - at, tonumber(head[3] or 0)}
local noted = redis.call('HGETALL', KEYS[1])
for i = 1, #noted, 2 do
  if string.sub(noted[i], 1, 5) == 'told:' then
    local told, sight = string.match(noted[i + 1], '^(%d+) (.*)$')
    local age = told and now - tonumber(told)
    if not told or age < 0 or age > tonumber(ARGV[3]) or #sight > tonumber(ARGV[4]) then
      redis.call('HDEL', KEYS[1], noted[i])
    elseif #answer < tonumber(ARGV[5]) + 3 then
      answer[#answer + 1] = sight
    end
  end
end
return answer
