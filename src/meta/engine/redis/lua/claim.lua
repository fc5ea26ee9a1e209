-- Elects: stores ARGV[1], the time, unless the stored time lies within ARGV[2] seconds of it.
local old = redis.call('GET', KEYS[1])
if old and tonumber(old) > tonumber(ARGV[1]) - tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
