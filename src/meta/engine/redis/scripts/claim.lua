-- Claims a job: stores the time ARGV[1], unless the stored time is less than ARGV[2] seconds before it.
-- Returns 1 if the job was claimed.
local old = redis.call('GET', KEYS[1])
if old and tonumber(old) > tonumber(ARGV[1]) - tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
