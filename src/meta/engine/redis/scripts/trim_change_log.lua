-- Removes lines of the change log before a version, at most ARGV[2] in one call. KEYS: the list, the
-- last version. ARGV: version, limit. Returns how many were removed.
local length = redis.call('LLEN', KEYS[1])
local first = tonumber(redis.call('GET', KEYS[2]) or '0') - length + 1
local count = math.min(tonumber(ARGV[1]) - first, tonumber(ARGV[2]), length)
if count <= 0 then return 0 end
redis.call('LTRIM', KEYS[1], count, -1)
return count
