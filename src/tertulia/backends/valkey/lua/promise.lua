-- Lets a newcomer into a lane, or says when to come back: `core.returns.Returns.ask`, for all gateways.
-- KEYS: moments by owner, state. ARGV: owner, how long it would be waited, may be, and may be by who
-- comes back when he was told, milliseconds from one begin to the next, the owner's part of a spread;
-- then what is the same for all: aim, grace, shortest, longest, most, keeps, believed, fewest. Times
-- are in milliseconds.
-- Answers -1 to come in, or after how many milliseconds to come back.
local owner, wait, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local back, gap, spread = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local aim, grace, shortest = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local longest, most = tonumber(ARGV[10]), tonumber(ARGV[11])
local keeps, believed, fewest = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local state = redis.call('HMGET', KEYS[2], 'booked', 'last', 'kept', 'missed')
local booked, last = tonumber(state[1] or 0), tonumber(state[2] or 0)
local kept, missed = tonumber(state[3] or 0), tonumber(state[4] or 0)

local function answer(told)
  redis.call('HSET', KEYS[2], 'booked', string.format('%.0f', booked), 'last',
    string.format('%.0f', last), 'kept', kept, 'missed', missed)
  redis.call('PEXPIRE', KEYS[1], 2 * longest)
  redis.call('PEXPIRE', KEYS[2], 2 * longest)
  return math.ceil(told)
end

local late = redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. string.format('%.0f', now - grace))
local faded = keeps ^ late
kept, missed = faded * kept, faded * missed + (1 - faded) / (1 - keeps)
local share = math.max(fewest, (believed + kept) / (believed + kept + missed))
local due = tonumber(redis.call('ZSCORE', KEYS[1], owner) or nil)
if due and due - now <= shortest / 2 then
  redis.call('ZREM', KEYS[1], owner)
  if wait <= back then
    kept, missed = keeps * kept + 1, keeps * missed
    return answer(-1)
  end
else
  local owed = redis.call('ZCOUNT', KEYS[1], '-inf', string.format('%.0f', now + limit))
  if due and due <= now + limit then
    owed = owed - 1
  end
  if wait + share * owed * gap <= limit then
    redis.call('ZREM', KEYS[1], owner)
    return answer(-1)
  end
  if due then
    return answer(due - now)
  end
end
local begins = math.max(booked, now + wait) + share * gap
due = math.max(now + shortest, begins - aim * limit, last)
if due - now > longest or redis.call('ZCARD', KEYS[1]) >= most then
  return answer(longest * (1 + spread))
end
booked, last = begins, due
redis.call('ZADD', KEYS[1], string.format('%.0f', due), owner)
return answer(due - now)
