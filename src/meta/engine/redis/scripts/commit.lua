-- Compares every guarded record with what was read, then applies every change.
--
-- ARGV[1] is a program: instructions of four bytes, a letter and the index of a key in KEYS; first
-- the guards, then a full stop, then the changes. The arguments of the instructions follow in ARGV, in
-- order. Values stay strings, so that no integer is rounded. Letters are compared as bytes, and the
-- instructions of every create come first: this runs for each change of any client, and the server
-- serves no other client meanwhile.
--
-- Returns {0, number...} with the result of every reporting change, {1, guard} on a conflict, or
-- {2, error, key, number of changes applied before it}.

local call, byte, program = redis.call, string.byte, ARGV[1]
local pc, at, key, done = 1, 2, '', 0

local function take()
  local value = ARGV[at]
  at = at + 1
  return value
end

-- Returns whether the hash has exactly the pairs that were read.
local function same_hash(count)
  local now = call('HGETALL', key)
  if #now ~= 2 * count then return false end
  local values = {}
  for i = 1, #now, 2 do values[now[i]] = now[i + 1] end
  for _ = 1, count do
    local field = take()
    if values[field] ~= take() then return false end
  end
  return true
end

-- Returns the keys that the next arguments name: a table, and the first and last index in it. A
-- negative number is followed by the first of that many consecutive indexes in KEYS, any other number
-- by each index.
local function named_keys()
  local count = tonumber(take())
  if count < 0 then
    local first = tonumber(take())
    return KEYS, first, first - count - 1
  end
  local keys = {}
  for i = 1, count do keys[i] = KEYS[tonumber(take())] end
  return keys, 1, count
end

-- Returns whether the values are those in the next arguments: after a length, all of them joined, each
-- of that length, which is much faster than comparing each; after 0, one by one.
local function same_values(values, count)
  local length = tonumber(take())
  if length == 0 then
    for i = 1, count do
      if values[i] ~= take() then return false end
    end
    return true
  end
  for i = 1, count do
    local value = values[i]
    if not value or #value ~= length then return false end
  end
  return table.concat(values) == take()
end

local function holds(letter)
  if letter == 'G' then
    local keys, first, last = named_keys()
    return same_values(call('MGET', unpack(keys, first, last)), last - first + 1)
  end
  if letter == 'g' then
    return call('EXISTS', unpack(named_keys())) == 0
  end
  if letter == 'B' then
    local count = tonumber(take())
    local first = at
    at = at + count
    return same_values(call('HMGET', key, unpack(ARGV, first, at - 1)), count)
  end
  if letter == 'P' then
    local attr, head, tail = call('GET', key), take(), take()
    return attr and string.sub(attr, 1, 11) == head and string.sub(attr, 60) == tail
  end
  if letter == 'L' then
    local last = take()
    return table.concat(call('LRANGE', key, 0, last)) == take()
  end
  if letter == 'E' then return call('HLEN', key) == 0 end
  if letter == 'e' then return call('HLEN', key) ~= 0 end
  if letter == 'H' then return same_hash(tonumber(take())) end
  if letter == 'M' then return call('SISMEMBER', key, take()) == 1 end
  if letter == 'm' then return call('SISMEMBER', key, take()) == 0 end
  if letter == 'X' then return call('EXISTS', key) == 1 end
  if letter == 'N' then
    if call('EXISTS', key) == 0 then error('NOATTR to touch', 0) end
    return true
  end
  if letter == 'T' then
    local found, wanted = call('TYPE', key)['ok'], take()
    if found ~= 'none' and found ~= wanted then
      error('WRONGTYPE ' .. found .. ' instead of ' .. wanted, 0)
    end
    return true
  end
  error('ERR unknown guard ' .. letter, 0)
end

local function starts_with(field, stem)
  return string.sub(field, 1, #stem) == stem
end

-- Removes the key from the session's set of locks if the session holds none here.
local function forget_if_unlocked(locked, stem)
  for _, field in ipairs(call('HKEYS', key)) do
    if starts_with(field, stem) then return end
  end
  call('SREM', locked, key)
end

-- Releases every lock of the session on this key.
local function release(locked, stem)
  for _, field in ipairs(call('HKEYS', key)) do
    if starts_with(field, stem) then call('HDEL', key, field) end
  end
  call('SREM', locked, key)
end

-- Returns whether one time of 12 bytes is later than another. Compares bytes, since Lua compares strings
-- by locale. The first byte has the sign of the seconds.
local function later(one, two)
  for i = 1, 12 do
    local a, b = byte(one, i), byte(two, i)
    if i == 1 then a, b = (a + 128) % 256, (b + 128) % 256 end
    if a ~= b then return a > b end
  end
  return false
end

-- Adds to the link count of a directory's attr, and advances its mtime and ctime.
local function touch(links, time)
  local attr = call('GET', key)
  if not attr then error('NOATTR to touch', 0) end
  local mtime, ctime = string.sub(attr, 24, 35), string.sub(attr, 36, 47)
  if #time == 12 and later(time, mtime) then mtime = time end
  if #time == 12 and later(time, ctime) then ctime = time end
  local a, b, c, d = byte(attr, 48, 51)
  local n = ((a * 256 + b) * 256 + c) * 256 + d + links
  n = math.min(math.max(n, 0), 4294967295)
  local nlink = string.char(math.floor(n / 16777216) % 256, math.floor(n / 65536) % 256,
    math.floor(n / 256) % 256, n % 256)
  call('SET', key, string.sub(attr, 1, 23) .. mtime .. ctime .. nlink .. string.sub(attr, 52))
end

local function check()
  for guard = 1, #program do
    local kind, high, middle, low = byte(program, pc, pc + 3)
    pc = pc + 4
    if kind == 46 then return nil end -- .
    key = KEYS[(high * 256 + middle) * 256 + low]
    local good
    if kind == 86 then -- V
      good = call('GET', key) == ARGV[at]
      at = at + 1
    elseif kind == 118 then -- v
      good = not call('GET', key)
    elseif kind == 70 then -- F
      good = call('HGET', key, ARGV[at]) == ARGV[at + 1]
      at = at + 2
    elseif kind == 102 then -- f
      good = not call('HGET', key, ARGV[at])
      at = at + 1
    else
      good = holds(string.char(kind))
    end
    if not good then return guard end
  end
end

local function apply()
  local out = {0}
  while pc <= #program do
    local kind, high, middle, low = byte(program, pc, pc + 3)
    pc = pc + 4
    key = KEYS[(high * 256 + middle) * 256 + low]
    if kind == 83 then -- S
      call('SET', key, ARGV[at])
      at = at + 1
    elseif kind == 72 then -- H
      call('HSET', key, ARGV[at], ARGV[at + 1])
      at = at + 2
    elseif kind == 73 then -- I
      call('INCRBY', key, ARGV[at])
      at = at + 1
    elseif kind == 90 then -- Z
      call('DEL', unpack(named_keys()))
    elseif kind == 89 then -- Y
      local pairs, keys, first, last = {}, named_keys()
      for i = first, last do
        pairs[#pairs + 1] = keys[i]
        pairs[#pairs + 1] = take()
      end
      call('MSET', unpack(pairs))
    elseif kind == 65 then -- A
      local first = tonumber(take())
      call('HDEL', key, unpack(ARGV, first, first + tonumber(take()) - 1))
    elseif kind == 75 then -- K
      touch(tonumber(take()), take())
    elseif kind == 85 then -- U
      forget_if_unlocked(KEYS[tonumber(take())], take())
    elseif kind == 68 then -- D
      release(KEYS[tonumber(take())], take())
    else -- C, R
      local name, count = take(), tonumber(take())
      local first = at
      at = at + count
      local result = call(name, key, unpack(ARGV, first, at - 1))
      if kind == 82 then out[#out + 1] = result end
    end
    done = done + 1
  end
  return out
end

local function run()
  local guard = check()
  if guard then return {1, guard} end
  return apply()
end

local ok, result = pcall(run)
if ok then return result end
if type(result) == 'table' then result = result['err'] end
return {2, tostring(result), key, done}
