-- Returns an entry and the attr of its inode. KEYS: the directory. ARGV: the name, and what the keys of
-- attrs start with. The attr's key depends on the entry, so it cannot be declared in KEYS; it is in the
-- same slot as the directory.

local entry = redis.call('HGET', KEYS[1], ARGV[1])
if not entry then return false end
if #entry ~= 9 then return {entry, false} end

-- Lua's numbers are exact only below 2^53. Larger inodes (trash) are converted in three parts of seven
-- digits.
local function decimal()
  local high = ((entry:byte(2) * 256 + entry:byte(3)) * 256 + entry:byte(4)) * 256 + entry:byte(5)
  if high < 2097152 then
    local low = ((entry:byte(6) * 256 + entry:byte(7)) * 256 + entry:byte(8)) * 256 + entry:byte(9)
    return string.format('%.0f', high * 4294967296 + low)
  end
  local limbs = {0, 0, 0}
  for i = 2, 9 do
    local carry = entry:byte(i)
    for limb = 1, 3 do
      local value = limbs[limb] * 256 + carry
      limbs[limb] = value % 10000000
      carry = math.floor(value / 10000000)
    end
  end
  return (string.format('%d%07d%07d', limbs[3], limbs[2], limbs[1]):gsub('^0+', ''))
end

return {entry, redis.call('GET', ARGV[2] .. decimal())}
