#!lua name=sluice_mirror
--
-- How the mirror writes: whole batches, each all or nothing, and only from where the last one ended.
--
-- A call names the cursor that the mirror believes in. Where another one stands, nothing is written
-- and that one is answered: another server has taken over, or the data was lost or put back. All
-- values are absolute, so what is said twice is no harm; but for the cursor nothing is read.
--
-- ARGUMENTS come in groups, `<op> <count> <items..>`. An end is Unix milliseconds; one that has
-- passed deletes the key.

-- The text of a key; what is no string was not written here, and counts as nothing.
local function text(key)
  local value = redis.pcall('GET', key)
  return type(value) == 'string' and value or ''
end

-- Whatever lies under a key that should be of another type makes way.
local function forced(command, key, ...)
  local answer = redis.pcall(command, key, ...)
  if type(answer) == 'table' and answer.err then
    redis.call('DEL', key)
    answer = redis.call(command, key, ...)
  end
  return answer
end

local function ends(key, ends_ms)
  if ends_ms ~= '' then
    redis.call('PEXPIREAT', key, ends_ms)
  end
end

-- Each writes the items that begin at argv[at], and returns where the next group begins.
local OPS = {}

-- key value
OPS.set = function(argv, at, count)
  redis.call('MSET', unpack(argv, at, at + 2 * count - 1))
  return at + 2 * count
end

-- key value end
OPS['until'] = function(argv, at, count)
  for index = at, at + 3 * count - 1, 3 do
    redis.call('SET', argv[index], argv[index + 1], 'PXAT', argv[index + 2])
  end
  return at + 3 * count
end

-- key
OPS.del = function(argv, at, count)
  redis.call('DEL', unpack(argv, at, at + count - 1))
  return at + count
end

-- key end fields field value..
OPS.hash = function(argv, at, count)
  for _ = 1, count do
    local key, last = argv[at], at + 2 + 2 * tonumber(argv[at + 2])
    redis.call('DEL', key)
    redis.call('HSET', key, unpack(argv, at + 3, last))
    ends(key, argv[at + 1])
    at = last + 1
  end
  return at
end

-- key field value
OPS.field = function(argv, at, count)
  for index = at, at + 3 * count - 1, 3 do
    forced('HSET', argv[index], argv[index + 1], argv[index + 2])
  end
  return at + 3 * count
end

-- key field
OPS.unfield = function(argv, at, count)
  for index = at, at + 2 * count - 1, 2 do
    forced('HDEL', argv[index], argv[index + 1])
  end
  return at + 2 * count
end

-- key member end
OPS.add = function(argv, at, count)
  for index = at, at + 3 * count - 1, 3 do
    forced('SADD', argv[index], argv[index + 1])
    ends(argv[index], argv[index + 2])
  end
  return at + 3 * count
end

-- key member
OPS.remove = function(argv, at, count)
  for index = at, at + 2 * count - 1, 2 do
    forced('SREM', argv[index], argv[index + 1])
  end
  return at + 2 * count
end

-- KEYS cursor stale; ARGV from to stale groups.. : 1, or the cursor found.
local function apply(keys, argv)
  local found = text(keys[1])
  if found ~= argv[1] then
    return found
  end
  local at = 4
  while argv[at] do
    at = OPS[argv[at]](argv, at + 2, tonumber(argv[at + 1]))
  end
  if argv[3] == '1' then
    redis.call('SET', keys[2], '1')
  else
    redis.call('DEL', keys[2])
  end
  if argv[2] == '' then
    redis.call('DEL', keys[1])
  else
    redis.call('SET', keys[1], argv[2])
  end
  return 1
end

-- KEYS cursor: the cursor, written to itself, so that a WAITAOF behind it waits for all before it.
local function touch(keys)
  local found = text(keys[1])
  if found ~= '' then
    redis.call('SET', keys[1], found)
  end
  return found
end

-- Verification ----------------------------------------------------------------------------------

local function described(key)
  local kind = redis.call('TYPE', key).ok
  local ends_ms = redis.call('PEXPIRETIME', key)
  local value = kind
  if kind == 'string' then
    value = redis.call('GET', key)
  elseif kind == 'none' then
    return 'nothing'
  end
  if ends_ms == -1 then
    return value
  end
  return value .. ' until ' .. string.format('%.0f', ends_ms)
end

-- Whether a hash holds exactly the fields argv[from..to].
local function holds(key, argv, from, to)
  local fields = redis.pcall('HGETALL', key)
  if fields.err or #fields ~= to - from + 1 then
    return false
  end
  local found = {}
  for index = 1, #fields, 2 do
    found[fields[index]] = fields[index + 1]
  end
  for index = from, to, 2 do
    if found[argv[index]] ~= argv[index + 1] then
      return false
    end
  end
  return true
end

local function lives(key, ends_ms)
  return redis.call('PEXPIRETIME', key) == (ends_ms == '' and -1 or tonumber(ends_ms))
end

-- Each tells whether the item at argv[at] is as it should be, and where the next one begins.
local CHECKS = {
  set = function(argv, at)
    return text(argv[at]) == argv[at + 1] and lives(argv[at], ''), at + 2
  end,
  ['until'] = function(argv, at)
    return text(argv[at]) == argv[at + 1] and lives(argv[at], argv[at + 2]), at + 3
  end,
  del = function(argv, at)
    return redis.call('EXISTS', argv[at]) == 0, at + 1
  end,
  hash = function(argv, at)
    local last = at + 2 + 2 * tonumber(argv[at + 2])
    return holds(argv[at], argv, at + 3, last) and lives(argv[at], argv[at + 1]), last + 1
  end,
  field = function(argv, at)
    return redis.pcall('HGET', argv[at], argv[at + 1]) == argv[at + 2], at + 3
  end,
  unfield = function(argv, at)
    return not redis.pcall('HGET', argv[at], argv[at + 1]), at + 2
  end,
  add = function(argv, at)
    return redis.pcall('SISMEMBER', argv[at], argv[at + 1]) == 1
      and lives(argv[at], argv[at + 2]), at + 3
  end,
  remove = function(argv, at)
    return redis.pcall('SISMEMBER', argv[at], argv[at + 1]) == 0, at + 2
  end,
}

-- The end of an item, or nil for one that has none.
local function item_end(op, argv, at)
  if op == 'until' or op == 'add' then
    return tonumber(argv[at + 2])
  elseif op == 'hash' then
    return tonumber(argv[at + 1])
  end
end

-- KEYS cursor; ARGV from groups.. : what was not as it should be, written right: key, what was
-- there; or the cursor found. What ends within a second is let go.
local function verify(keys, argv)
  local found = text(keys[1])
  if found ~= argv[1] then
    return found
  end
  local soon_ms = (tonumber(redis.call('TIME')[1]) + 1) * 1000
  local wrong = {}
  local at = 2
  while argv[at] do
    local op, count = argv[at], tonumber(argv[at + 1])
    at = at + 2
    for _ = 1, count do
      local ends_ms = item_end(op, argv, at)
      local right, after = CHECKS[op](argv, at)
      if not right and not (ends_ms and ends_ms <= soon_ms) then
        wrong[#wrong + 1] = argv[at]
        wrong[#wrong + 1] = described(argv[at])
        OPS[op](argv, at, 1)
      end
      at = after
    end
  end
  return wrong
end

redis.register_function('sluice_mirror_apply', apply)
redis.register_function('sluice_mirror_touch', touch)
redis.register_function('sluice_mirror_verify', verify)
