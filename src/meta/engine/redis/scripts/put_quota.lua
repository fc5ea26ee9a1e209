-- Writes a quota's limits, and its usage if ARGV[5] is '1' or the quota is new. KEYS: limits, space,
-- inodes. ARGV: field, limits, used space, used inodes, '1', limits that mean "no quota" or ''.
-- Returns 1 if the quota is new.
local old = redis.call('HGET', KEYS[1], ARGV[1])
local new = not old or (ARGV[6] ~= '' and old == ARGV[6])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if ARGV[5] == '1' then
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
  redis.call('HSET', KEYS[3], ARGV[1], ARGV[4])
else
  -- Every client would ignore a quota without usage.
  if new then
    redis.call('HSET', KEYS[2], ARGV[1], '0')
    redis.call('HSET', KEYS[3], ARGV[1], '0')
  else
    redis.call('HSETNX', KEYS[2], ARGV[1], '0')
    redis.call('HSETNX', KEYS[3], ARGV[1], '0')
  end
end
return new and 1 or 0
