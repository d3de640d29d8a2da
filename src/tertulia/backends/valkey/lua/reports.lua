-- All reports with their ages; what is older than the limit, or is no report, is forgotten.
-- One from the future was noted by a server with another clock: nobody knows its age.
-- KEYS: registry. ARGV: the limits of an age in milliseconds, of a report in bytes, and of reports.
-- Answers age, report, age, report ...
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local noted = redis.call('HGETALL', KEYS[1])
local reports = {}
for i = 1, #noted, 2 do
  local at, report = string.match(noted[i + 1], '^(%d+) [^\n]*\n(.*)$')
  local age = at and ms - tonumber(at)
  if not at or age < 0 or age > tonumber(ARGV[1]) or #report > tonumber(ARGV[2]) then
    redis.call('HDEL', KEYS[1], noted[i])
  elseif #reports < 2 * tonumber(ARGV[3]) then
    reports[#reports + 1] = age
    reports[#reports + 1] = report
  end
end
return reports
