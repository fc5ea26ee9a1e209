-- Returns lines of the change log after a version, as {version of the first line, line...}. KEYS: the
-- list, the last version. ARGV: version, limit.
local first = tonumber(redis.call('GET', KEYS[2]) or '0') - redis.call('LLEN', KEYS[1]) + 1
local start = math.max(first, tonumber(ARGV[1]) + 1)
local lines = redis.call('LRANGE', KEYS[1], start - first, start - first + tonumber(ARGV[2]) - 1)
table.insert(lines, 1, string.format('%.0f', start))
return lines
