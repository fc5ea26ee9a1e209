-- Adds to the statistics of directories. KEYS: lengths, spaces, inodes. ARGV: for each directory its
-- inode and the three deltas. Returns the inodes whose statistics are incomplete or would become
-- negative; those are not changed.
local invalid = {}
for i = 1, #ARGV, 4 do
  local dir, valid = ARGV[i], true
  for hash = 1, 3 do
    local old = tonumber(redis.call('HGET', KEYS[hash], dir) or '')
    if not old or old + tonumber(ARGV[i + hash]) < 0 then valid = false end
  end
  if valid then
    for hash = 1, 3 do
      if ARGV[i + hash] ~= '0' then redis.call('HINCRBY', KEYS[hash], dir, ARGV[i + hash]) end
    end
  else
    invalid[#invalid + 1] = dir
  end
end
return invalid
