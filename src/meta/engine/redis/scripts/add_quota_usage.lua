-- Adds usage to quotas of one kind. KEYS: limits, space, inodes. ARGV: the limits of a missing quota
-- that is to be created, or '' to skip it; then for each quota its field, space and inodes.
for i = 2, #ARGV, 3 do
  local field = ARGV[i]
  if ARGV[1] ~= '' then redis.call('HSETNX', KEYS[1], field, ARGV[1]) end
  if ARGV[1] ~= '' or redis.call('HEXISTS', KEYS[1], field) == 1 then
    redis.call('HINCRBY', KEYS[2], field, ARGV[i + 1])
    redis.call('HINCRBY', KEYS[3], field, ARGV[i + 2])
  end
end
return 0
