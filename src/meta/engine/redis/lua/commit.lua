-- Compares every guarded record with what was read, then applies every change.
--
-- ARGV: number of guards, the guards, number of commands, the commands. Every item starts with a
-- letter; keys are given as indexes into KEYS. Values stay strings, so that no integer is rounded.
--
-- Answers {0, number...} with the result of every reporting command, {1, guard} on a conflict, or
-- {2, error, key, writes done before it}.

local at, key, done = 1, '', 0

local function take()
  local value = ARGV[at]
  at = at + 1
  return value
end

local function take_key()
  key = KEYS[tonumber(take())]
  return key
end

local function same_hash(pairs_read)
  local now = redis.call('HGETALL', key)
  if #now ~= 2 * pairs_read then return false end
  local values = {}
  for i = 1, #now, 2 do values[now[i]] = now[i + 1] end
  for _ = 1, pairs_read do
    local field = take()
    if values[field] ~= take() then return false end
  end
  return true
end

local function holds()
  local kind, k = take(), take_key()
  if kind == 'V' then return redis.call('GET', k) == take() end
  if kind == 'v' then return not redis.call('GET', k) end
  if kind == 'P' then
    local attr, head, tail = redis.call('GET', k), take(), take()
    return attr and string.sub(attr, 1, 11) == head and string.sub(attr, 60) == tail
  end
  if kind == 'F' then
    local field = take()
    return redis.call('HGET', k, field) == take()
  end
  if kind == 'f' then return not redis.call('HGET', k, take()) end
  if kind == 'L' then return table.concat(redis.call('LRANGE', k, 0, take())) == take() end
  if kind == 'E' then return redis.call('HLEN', k) == 0 end
  if kind == 'e' then return redis.call('HLEN', k) ~= 0 end
  if kind == 'H' then return same_hash(tonumber(take())) end
  if kind == 'M' then return redis.call('SISMEMBER', k, take()) == 1 end
  if kind == 'm' then return redis.call('SISMEMBER', k, take()) == 0 end
  if kind == 'X' then return redis.call('EXISTS', k) == 1 end
  if kind == 'N' then
    if redis.call('EXISTS', k) == 0 then error('NOATTR to touch', 0) end
    return true
  end
  if kind == 'T' then
    local found, wanted = redis.call('TYPE', k)['ok'], take()
    if found ~= 'none' and found ~= wanted then
      error('WRONGTYPE ' .. found .. ' instead of ' .. wanted, 0)
    end
    return true
  end
  error('ERR unknown guard ' .. kind, 0)
end

local function is_of(field, stem)
  return string.sub(field, 1, #stem) == stem
end

-- Forgets that the session has a lock here, once it holds none.
local function tidy()
  local k, locked, stem = take_key(), KEYS[tonumber(take())], take()
  for _, field in ipairs(redis.call('HKEYS', k)) do
    if is_of(field, stem) then return end
  end
  redis.call('SREM', locked, k)
end

-- Drops every lock of the session here.
local function release()
  local k, locked, stem = take_key(), KEYS[tonumber(take())], take()
  for _, field in ipairs(redis.call('HKEYS', k)) do
    if is_of(field, stem) then redis.call('HDEL', k, field) end
  end
  redis.call('SREM', locked, k)
end

-- Whether 12 bytes of time are later than others. Byte by byte: Lua compares strings by locale. The
-- first bears the sign of the seconds.
local function later(one, two)
  for i = 1, 12 do
    local a, b = string.byte(one, i), string.byte(two, i)
    if i == 1 then a, b = (a + 128) % 256, (b + 128) % 256 end
    if a ~= b then return a > b end
  end
  return false
end

-- Adds to the link count of a directory's attr, and moves its mtime and ctime forward.
local function touch()
  local k, links, time = take_key(), tonumber(take()), take()
  local attr = redis.call('GET', k)
  if not attr then error('NOATTR to touch', 0) end
  local mtime, ctime = string.sub(attr, 24, 35), string.sub(attr, 36, 47)
  if #time == 12 and later(time, mtime) then mtime = time end
  if #time == 12 and later(time, ctime) then ctime = time end
  local a, b, c, d = string.byte(attr, 48, 51)
  local n = ((a * 256 + b) * 256 + c) * 256 + d + links
  n = math.min(math.max(n, 0), 4294967295)
  local nlink = string.char(math.floor(n / 16777216) % 256, math.floor(n / 65536) % 256,
    math.floor(n / 256) % 256, n % 256)
  redis.call('SET', k, string.sub(attr, 1, 23) .. mtime .. ctime .. nlink .. string.sub(attr, 52))
end

local function run()
  for guard = 1, tonumber(take()) do
    if not holds() then return {1, guard} end
  end
  local out = {0}
  for _ = 1, tonumber(take()) do
    local kind = take()
    if kind == 'U' then
      tidy()
    elseif kind == 'D' then
      release()
    elseif kind == 'K' then
      touch()
    else
      local name, k, count = take(), take_key(), tonumber(take())
      local first = at
      at = at + count
      local result = redis.call(name, k, unpack(ARGV, first, at - 1))
      if kind == 'R' then out[#out + 1] = result end
    end
    done = done + 1
  end
  return out
end

local ok, answer = pcall(run)
if ok then return answer end
if type(answer) == 'table' then answer = answer['err'] end
return {2, tostring(answer), key, done}
