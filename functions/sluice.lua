#!lua name=sluice
--
-- A flash sale inside Redis >= 7.2 or Valkey: the calls that Sluice serves, with the same answers.
--
-- THE STORY. An activity has units, each available, locked (reserved, unpaid) or sold. A purchase
-- moves units from available to locked, raises what the user holds, and gives the request id its
-- reservation, together or not at all: a call reads and decides first, then writes, and between
-- its first and its last write nothing can fail. The first check that does not hold answers.
--
-- TWO KINDS OF KEYS. The compatibility keys (flashsale:*) are what other programs read. They are
-- only ever written here, absolute values, never read back. The private keys hold the truth:
--
--   sluice:meta                  hash: next_ordinal, order_prefix (1..999; set it before the first
--                                warm, it is frozen into each activity)
--   sluice:a:<activity>          hash: the fields below; op:<op_id> = "kind delta answer"
--   sluice:q:<activity>:<user>   hash: held, count; r:<request_id> = "reservation_id quantity"
--   sluice:r:<reservation_id>    string: "status activity user quantity created_ms payment_no"
--
-- They live until end_at + 25 h. The server must not evict them (maxmemory-policy noeviction),
-- and must be one node: the keys of a call lie in many slots.
--
-- NUMBERS. Lua counts in doubles, exact up to 2^53 - 1, which no id and no amount exceeds. They
-- become text through dec() alone: tostring() would write 1e+15.
--
-- DURABILITY is the server's. Send WAITAOF after a call, or do not call it sold.

local ID_MAX = 9007199254740991 -- 2^53 - 1: survives JSON parsers that read doubles
local UNITS_MAX = 2147483647 -- a signed 32-bit column holds units everywhere
local TIME_MS_MAX = 253402300799999 -- the end of the year 9999
local TEXT_BYTES_MAX = 64 -- of a request id, an operation id, a payment number
local ORDINAL_MAX = 2097151 -- 21 bits, above 32 bits of position
local POSITION_MAX = 4294967295
local RESERVATIONS_BEYOND_LIMIT_MAX = 16 -- bounds state under buy-cancel-buy
local OPERATIONS_MAX = 65536 -- that an activity remembers
local ORDER_PREFIX_MAX = 999

local SECOND_MS = 1000
local HOUR_MS = 3600 * SECOND_MS
local PRIVATE_MS = 25 * HOUR_MS -- after end_at
local PUBLIC_MS = HOUR_MS -- after end_at: stock and count
local IDEM_MS = HOUR_MS / 2 -- after acceptance
local TOMBSTONE_MS = 24 * HOUR_MS -- after the give-back

local RESERVED, REPLAYED, SOLD_OUT = 1, 2, 0
local NOT_IN_WINDOW, LIMIT_REACHED, OFF_SALE = -1, -2, -3
local PAUSED, UNKNOWN_ACTIVITY, REQUEST_ID_REUSED = -4, -5, -6

-- Text and numbers ------------------------------------------------------------------------------

local function dec(number)
  return string.format('%.0f', number)
end

local function invalid(reason)
  return redis.error_reply('INVALID ' .. reason)
end

-- Exactly what Rust calls UTF-8: no overlong form, no surrogate, nothing above U+10FFFF.
local function is_utf8(text)
  if not string.find(text, '[\128-\255]') then
    return true
  end
  local at = 1
  while at <= #text do
    local lead = string.byte(text, at)
    local more, low, high = 0, 0x80, 0xBF
    if lead >= 0xC2 and lead <= 0xDF then
      more = 1
    elseif lead >= 0xE0 and lead <= 0xEF then
      more = 2
      if lead == 0xE0 then low = 0xA0 elseif lead == 0xED then high = 0x9F end
    elseif lead >= 0xF0 and lead <= 0xF4 then
      more = 3
      if lead == 0xF0 then low = 0x90 elseif lead == 0xF4 then high = 0x8F end
    elseif lead >= 0x80 then
      return false
    end
    for offset = 1, more do
      local byte = string.byte(text, at + offset)
      if not byte or byte < low or byte > high then
        return false
      end
      low, high = 0x80, 0xBF
    end
    at = at + more + 1
  end
  return true
end

-- Arguments -------------------------------------------------------------------------------------
--
-- While a library is loaded the server gives it no string functions: what needs them runs in calls.

-- A decimal, no sign, leading zeros ignored (load generators send them).
local function integer(name, min, max)
  local function bounds()
    return name .. ' must be a decimal ' .. dec(min) .. '..=' .. dec(max)
  end
  return { name = name, bounds = bounds, read = function(text)
    local digits = string.match(text, '^0*(%d+)$')
    local number = digits and tonumber(digits)
    if number and number >= min and number <= max then
      return number
    end
  end }
end

local function text(name)
  local function bounds()
    return name .. ' must be 1..=' .. TEXT_BYTES_MAX .. ' bytes of UTF-8'
  end
  return { name = name, bounds = bounds, read = function(value)
    if #value >= 1 and #value <= TEXT_BYTES_MAX and is_utf8(value) then
      return value
    end
  end }
end

local ACTIVITY = integer('activity', 1, ID_MAX)
local USER = integer('user', 1, ID_MAX)
local QUANTITY = integer('quantity', 1, UNITS_MAX)
local DELTA = integer('delta', 1, UNITS_MAX)
local RESERVATION = integer('reservation_id', 1, ID_MAX)
local NOW = integer('now_ms', 0, TIME_MS_MAX)

-- The fields of an activity's hash, the operations aside, in the order in which they are read.
local FIELDS = {
  'ordinal', 'order_prefix', 'sku', 'price', 'limit', 'start_ms', 'end_ms', 'available',
  'locked', 'sold', 'on_sale', 'paused', 'reservations', 'operations',
}

-- Activities ------------------------------------------------------------------------------------

-- The activity, or nil. `at` is its id as text. Written out field by field, in the order of FIELDS:
-- every call begins here, and a table that grows while it is filled is rehashed five times.
local function find_activity(id)
  local at = dec(id)
  local key = 'sluice:a:' .. at
  local values = redis.call('HMGET', key, unpack(FIELDS))
  if not values[1] then
    return nil
  end
  return {
    at = at, key = key, ordinal = tonumber(values[1]), order_prefix = values[2],
    sku = tonumber(values[3]), price = tonumber(values[4]), limit = tonumber(values[5]),
    start_ms = tonumber(values[6]), end_ms = tonumber(values[7]),
    available = tonumber(values[8]), locked = tonumber(values[9]), sold = tonumber(values[10]),
    on_sale = tonumber(values[11]), paused = tonumber(values[12]),
    reservations = tonumber(values[13]), operations = tonumber(values[14]),
  }
end

local function private_until(activity)
  return dec(activity.end_ms + PRIVATE_MS)
end

local function public_until(activity)
  return dec(activity.end_ms + PUBLIC_MS)
end

local function total(activity)
  return activity.available + activity.locked + activity.sold
end

local function write_stock(activity)
  local stock = dec(activity.available)
  redis.call('SET', 'flashsale:stock:' .. activity.at, stock, 'PXAT', public_until(activity))
end

local function warm(id, _, sku, price, units, limit, start_ms, end_ms)
  if start_ms > end_ms then
    return invalid('start_ms must not be after end_ms')
  end
  if find_activity(id) then
    return 0
  end
  local meta = redis.call('HMGET', 'sluice:meta', 'next_ordinal', 'order_prefix')
  local ordinal = tonumber(meta[1] or '1')
  local prefix = tonumber(string.match(meta[2] or '1', '^[1-9]%d?%d?$'))
  if not ordinal or ordinal < 1 or ordinal > ORDINAL_MAX then
    return invalid('next_ordinal of sluice:meta is beyond 21 bits: no activity can be added')
  end
  if not prefix or prefix > ORDER_PREFIX_MAX then
    return invalid('order_prefix of sluice:meta must be 1..=' .. ORDER_PREFIX_MAX)
  end
  local activity = {
    ordinal = ordinal, order_prefix = prefix, sku = sku, price = price, limit = limit,
    start_ms = start_ms, end_ms = end_ms, available = units, locked = 0, sold = 0,
    on_sale = 0, paused = 0, reservations = 0, operations = 0,
  }
  local fields = {}
  for _, field in ipairs(FIELDS) do
    fields[#fields + 1] = field
    fields[#fields + 1] = dec(activity[field])
  end
  activity.at = dec(id)
  redis.call('HSET', 'sluice:meta', 'next_ordinal', dec(ordinal + 1), 'order_prefix', dec(prefix))
  redis.call('HSET', 'sluice:a:' .. activity.at, unpack(fields))
  redis.call('PEXPIREAT', 'sluice:a:' .. activity.at, private_until(activity))
  write_stock(activity)
  return 1
end

-- Throws a switch of an activity. Where it stands so already, nothing changes.
local function switch(field, value)
  return function(id)
    local activity = find_activity(id)
    local pause_key = 'flashsale:pause:' .. dec(id)
    if field == 'paused' and value == 0 then
      redis.call('DEL', pause_key) -- of an activity whose life is over, too
    end
    if not activity then
      return 0
    end
    redis.call('HSET', activity.key, field, dec(value))
    if field == 'paused' and value == 1 then
      redis.call('SET', pause_key, '1')
    end
    return 1
  end
end

-- Adds (sign 1) or takes away (sign -1) free units, once per operation id.
local function change_total(kind, sign)
  return function(id, _, op_id, delta)
    local activity = find_activity(id)
    if not activity then
      return invalid('activity is unknown')
    end
    local field = 'op:' .. op_id
    local done = redis.call('HGET', activity.key, field)
    if done then
      local done_kind, done_delta, answer = string.match(done, '^(%a+) (%d+) (%d+)$')
      if done_kind == kind and tonumber(done_delta) == delta then
        return tonumber(answer)
      end
      return invalid('op_id was used with another operation')
    end
    if activity.operations >= OPERATIONS_MAX then
      return invalid('the activity remembers ' .. OPERATIONS_MAX .. ' operations, all it can')
    end
    if sign < 0 and activity.available < delta then
      return invalid('the total would fall below what is reserved and sold')
    end
    if total(activity) + sign * delta > UNITS_MAX then
      return invalid('delta would raise the total above ' .. UNITS_MAX)
    end
    activity.available = activity.available + sign * delta
    local available = dec(activity.available)
    redis.call('HSET', activity.key, 'available', available,
      'operations', dec(activity.operations + 1),
      field, kind .. ' ' .. dec(delta) .. ' ' .. available)
    write_stock(activity)
    return activity.available
  end
end

-- Reservations ----------------------------------------------------------------------------------

local function user_key(activity, user)
  return 'sluice:q:' .. activity.at .. ':' .. dec(user)
end

local function order_no(activity, reservation_id)
  return activity.order_prefix .. string.format('%017.0f', reservation_id)
end

local function write_reservation(activity, it)
  local value = string.format('%s %s %.0f %.0f %.0f ', it.status, activity.at, it.user,
    it.quantity, it.created_ms) .. it.payment_no
  redis.call('SET', 'sluice:r:' .. dec(it.id), value, 'PXAT', private_until(activity))
end

-- The reservation, or nil where the activity has none with that id.
local function find_reservation(activity, id)
  local value = redis.call('GET', 'sluice:r:' .. dec(id))
  if not value then
    return nil
  end
  local status, of, user, quantity, created_ms, payment_no =
    string.match(value, '^(%S+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  if of ~= activity.at then
    return nil
  end
  return {
    id = id, status = status, user = tonumber(user), quantity = tonumber(quantity),
    created_ms = tonumber(created_ms), payment_no = payment_no,
  }
end

local function write_held(activity, user, held)
  local key = 'flashsale:count:' .. activity.at .. ':' .. dec(user)
  if held == 0 then
    redis.call('DEL', key)
  else
    redis.call('SET', key, dec(held), 'PXAT', public_until(activity))
  end
end

local function idem_key(activity, user, reservation_id)
  return 'flashsale:idem:' .. activity.at .. ':' .. dec(user) .. ':' .. dec(reservation_id)
end

-- The code that refuses a purchase, or nil.
local function refusal(activity, quantity, held, count, now_ms)
  if activity.paused == 1 then
    return PAUSED
  elseif activity.on_sale == 0 then
    return OFF_SALE
  elseif now_ms < activity.start_ms or now_ms > activity.end_ms then
    return NOT_IN_WINDOW
  elseif activity.available < quantity then
    return SOLD_OUT
  elseif held + quantity > activity.limit
    or count >= activity.limit + RESERVATIONS_BEYOND_LIMIT_MAX
    or activity.reservations >= POSITION_MAX then
    return LIMIT_REACHED
  end
end

local function reserve(id, now_ms, user, request_id, quantity)
  local activity = find_activity(id)
  if not activity then
    return { UNKNOWN_ACTIVITY, 0, '', 0 }
  end
  if activity.price * quantity > ID_MAX then
    return invalid('price x quantity must be at most 2^53-1')
  end
  local requests = user_key(activity, user)
  local request = 'r:' .. request_id
  local known = redis.call('HMGET', requests, 'held', 'count', request)
  -- A known request is answered even while paused, after the end, or above the limit.
  if known[3] then
    local found, found_quantity = string.match(known[3], '^(%d+) (%d+)$')
    if tonumber(found_quantity) ~= quantity then
      return { REQUEST_ID_REUSED, 0, '', activity.available }
    end
    found = tonumber(found)
    return { REPLAYED, found, order_no(activity, found), activity.available }
  end
  local held, count = tonumber(known[1] or '0'), tonumber(known[2] or '0')
  local code = refusal(activity, quantity, held, count, now_ms)
  if code then
    return { code, 0, '', activity.available }
  end

  local position = activity.reservations + 1
  local reservation = {
    id = activity.ordinal * 4294967296 + position, status = 'reserved', user = user,
    quantity = quantity, created_ms = now_ms, payment_no = '',
  }
  local token = dec(reservation.id)
  activity.available = activity.available - quantity
  held = held + quantity
  write_reservation(activity, reservation)
  redis.call('HSET', activity.key, 'available', dec(activity.available),
    'locked', dec(activity.locked + quantity), 'reservations', dec(position))
  redis.call('HSET', requests, 'held', dec(held), 'count', dec(count + 1),
    request, token .. ' ' .. dec(quantity))
  if count == 0 then
    redis.call('PEXPIREAT', requests, private_until(activity))
  end
  write_stock(activity)
  write_held(activity, user, held)
  redis.call('SET', idem_key(activity, user, reservation.id), token,
    'PXAT', dec(now_ms + IDEM_MS))
  redis.call('SET', 'flashsale:reservation:' .. token, token)
  return { RESERVED, reservation.id, order_no(activity, reservation.id), activity.available }
end

local function confirm(id, _, reservation_id, payment_no)
  local activity = find_activity(id)
  local it = activity and find_reservation(activity, reservation_id)
  if not it then
    return 0
  elseif it.status == 'rolled_back' then
    return -1
  elseif it.status == 'confirmed' then
    return it.payment_no == payment_no and 2 or 3
  end
  it.status, it.payment_no = 'confirmed', payment_no
  write_reservation(activity, it)
  redis.call('HSET', activity.key, 'locked', dec(activity.locked - it.quantity),
    'sold', dec(activity.sold + it.quantity))
  redis.call('DEL', 'flashsale:reservation:' .. dec(it.id))
  return 1
end

local function restore(id, now_ms, reservation_id)
  local activity = find_activity(id)
  local it = activity and find_reservation(activity, reservation_id)
  if not it then
    return 0
  elseif it.status == 'rolled_back' then
    return 2
  elseif it.status == 'confirmed' then
    return 3
  end
  local requests = user_key(activity, it.user)
  local held = tonumber(redis.call('HGET', requests, 'held') or nil)
  if not held then
    return redis.error_reply('ERR ' .. requests .. ' is gone: set maxmemory-policy noeviction')
  end
  held = held - it.quantity
  activity.available = activity.available + it.quantity
  it.status = 'rolled_back'
  write_reservation(activity, it)
  redis.call('HSET', activity.key, 'available', dec(activity.available),
    'locked', dec(activity.locked - it.quantity))
  redis.call('HSET', requests, 'held', dec(held))
  write_stock(activity)
  write_held(activity, it.user, held)
  local token = dec(it.id)
  redis.call('DEL', idem_key(activity, it.user, it.id))
  redis.call('SET', 'flashsale:reservation:' .. token, 'rolled_back:' .. token,
    'PXAT', dec(now_ms + TOMBSTONE_MS))
  return 1
end

-- Queries ---------------------------------------------------------------------------------------

local function get(id, _, reservation_id)
  local activity = find_activity(id)
  local it = activity and find_reservation(activity, reservation_id)
  if not it then
    return { map = {} }
  end
  return { map = {
    id = it.id, activity = id, user = it.user, sku = activity.sku, price = activity.price,
    quantity = it.quantity, order_no = order_no(activity, it.id), status = it.status,
    payment_no = it.payment_no, created_ms = it.created_ms,
  } }
end

local function show(id)
  local activity = find_activity(id)
  if not activity then
    return { map = {} }
  end
  local map = { id = id, total = total(activity) }
  for _, field in ipairs({ 'sku', 'price', 'available', 'locked', 'sold', 'limit',
    'start_ms', 'end_ms', 'on_sale', 'paused' }) do
    map[field] = activity[field]
  end
  return { map = map }
end

-- The calls -------------------------------------------------------------------------------------

-- `FCALL name 1 <activity> <arguments> [now_ms]`: checks their shape, then answers.
local function call(name, flags, arguments, answer)
  local function usage()
    local text = name .. ' takes 1 key, the activity, then'
    for _, argument in ipairs(arguments) do
      text = text .. ' ' .. argument.name
    end
    return text .. ' [now_ms]'
  end
  redis.register_function({ function_name = name, flags = flags, callback = function(keys, argv)
    if #keys ~= 1 or #argv < #arguments or #argv > #arguments + 1 then
      return invalid(usage())
    end
    local activity = ACTIVITY.read(keys[1])
    if not activity then
      return invalid(ACTIVITY.bounds())
    end
    local values = {}
    for index, argument in ipairs(arguments) do
      values[index] = argument.read(argv[index])
      if not values[index] then
        return invalid(argument.bounds())
      end
    end
    local now_ms
    if #argv > #arguments then
      now_ms = NOW.read(argv[#argv])
      if not now_ms then
        return invalid(NOW.bounds())
      end
    else
      local time = redis.call('TIME')
      now_ms = tonumber(time[1]) * SECOND_MS + math.floor(tonumber(time[2]) / 1000)
    end
    return answer(activity, now_ms, unpack(values, 1, #arguments))
  end })
end

-- In a cluster the keys of a call lie on several nodes: refused, not half done.
local WRITES = { 'no-cluster' }
local READS = { 'no-cluster', 'no-writes' }

call('sluice_reserve', WRITES, { USER, text('request_id'), QUANTITY }, reserve)
call('sluice_confirm', WRITES, { RESERVATION, text('payment_no') }, confirm)
call('sluice_restore', WRITES, { RESERVATION }, restore)
call('sluice_warm', WRITES, {
  integer('sku', 1, ID_MAX), integer('price', 0, ID_MAX), integer('total', 1, UNITS_MAX),
  integer('limit', 1, UNITS_MAX), integer('start_ms', 0, TIME_MS_MAX),
  integer('end_ms', 0, TIME_MS_MAX),
}, warm)
call('sluice_publish', WRITES, {}, switch('on_sale', 1))
call('sluice_unpublish', WRITES, {}, switch('on_sale', 0))
call('sluice_pause', WRITES, {}, switch('paused', 1))
call('sluice_resume', WRITES, {}, switch('paused', 0))
call('sluice_decrease', WRITES, { text('op_id'), DELTA }, change_total('decrease', -1))
call('sluice_restock', WRITES, { text('op_id'), DELTA }, change_total('restock', 1))
call('sluice_get', READS, { RESERVATION }, get)
call('sluice_activity', READS, {}, show)
