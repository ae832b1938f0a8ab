#!lua name=sluice
--
-- The pre-deduction as older systems have it, and nothing else: stock, the buyer's counter, and the
-- slot of the request id. Under the names and with the answers of functions/sluice.lua, so that one
-- client drives both. It knows no windows, no pauses, no reservations to look up or to give back.

-- What an older client sends along with each call. Set by the warm-up; a restart forgets it.
local total, limit = {}, {}

local SLOT_SECONDS = 1800

local function warm(keys, args)
  local id = keys[1]
  total[id], limit[id] = tonumber(args[3]), tonumber(args[4])
  redis.call('SET', 'sale:stock:' .. id, args[3])
  return 1
end

local function reserve(keys, args)
  local id, user, quantity = keys[1], args[1], tonumber(args[3])
  local slot = 'sale:request:' .. id .. ':' .. user .. ':' .. args[2]
  local known = redis.call('GET', slot)
  if known then
    return { 2, tonumber(known), known, 0 }
  end
  local stock = 'sale:stock:' .. id
  local available = tonumber(redis.call('GET', stock))
  if available < quantity then
    return { 0, 0, '', available }
  end
  local counter = 'sale:count:' .. id .. ':' .. user
  local held = tonumber(redis.call('GET', counter) or '0')
  if held + quantity > limit[id] then
    return { -2, 0, '', available }
  end
  available = redis.call('DECRBY', stock, quantity)
  redis.call('INCRBY', counter, quantity)
  local number = string.format('%.0f', 4294967296 + total[id] - available)
  redis.call('SET', slot, number, 'EX', SLOT_SECONDS)
  return { 1, tonumber(number), number, available }
end

local function show(keys)
  local id = keys[1]
  local available = tonumber(redis.call('GET', 'sale:stock:' .. id))
  return {
    'id', tonumber(id), 'total', total[id], 'available', available,
    'locked', total[id] - available, 'sold', 0, 'limit', limit[id],
  }
end

redis.register_function('sluice_warm', warm)
redis.register_function('sluice_publish', function() return 1 end)
redis.register_function('sluice_reserve', reserve)
redis.register_function({ function_name = 'sluice_activity', callback = show, flags = { 'no-writes' } })
