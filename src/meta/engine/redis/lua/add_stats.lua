-- Adds to directories' stats. KEYS: lengths, spaces, inodes. ARGV: per directory its inode and the
-- three deltas. Answers the inodes whose stat is incomplete or would turn negative; those are left.
local bad = {}
for i = 1, #ARGV, 4 do
  local dir, good = ARGV[i], true
  for hash = 1, 3 do
    local old = tonumber(redis.call('HGET', KEYS[hash], dir) or '')
    if not old or old + tonumber(ARGV[i + hash]) < 0 then good = false end
  end
  if good then
    for hash = 1, 3 do
      if ARGV[i + hash] ~= '0' then redis.call('HINCRBY', KEYS[hash], dir, ARGV[i + hash]) end
    end
  else
    bad[#bad + 1] = dir
  end
end
return bad
