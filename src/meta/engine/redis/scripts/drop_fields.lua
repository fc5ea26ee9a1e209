-- Removes the fields ARGV[2], ... of a hash that still have the value ARGV[1]. Returns how many.
local dropped = 0
for i = 2, #ARGV do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[1] then
    dropped = dropped + redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return dropped
