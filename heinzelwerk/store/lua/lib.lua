-- What every script begins with: its arguments, the server's clock, and the moves on `due`.
--
-- KEYS[1]  the team's beginning, `<prefix>hw:{<team>}:`; every key is derived from it and shares its hash tag.
-- ARGV[1]  the store's options as JSON, ARGV[2] the arguments as JSON, ARGV[3..] the contents (see `blob`).
-- The key table, with types, owners and TTLs, is heinzelwerk/store/keys.py.
local B = KEYS[1]
local O = cjson.decode(ARGV[1])
local A = cjson.decode(ARGV[2])
local null = cjson.null
local call = redis.call

local blob_at = 2
-- The next content, as it is: records and bodies are never decoded and encoded again here.
local function blob()
  blob_at = blob_at + 1
  return ARGV[blob_at]
end

local function server_ms()
  local time = call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local NOW = server_ms()

local function given(value) return value ~= nil and value ~= null end
local function int(value) return string.format('%.0f', value) end
local function count(name) call('HINCRBY', B .. 'counters', name, 1) end
local function of(heinzel) return B .. 's:' .. heinzel end

local function due(member, at) call('ZADD', B .. 'due', int(at), member) end
local function calm(member) call('HDEL', B .. 'backoff', member) end
local function undue(member)
  call('ZREM', B .. 'due', member)
  calm(member)
end

-- Moves an entry on by its delay, which doubles until somebody makes progress.
local function bump(member)
  local delay = tonumber(call('HGET', B .. 'backoff', member) or '0')
  delay = delay > 0 and math.min(delay * 2, O.ring_most_ms) or O.ring_first_ms
  call('HSET', B .. 'backoff', member, int(delay))
  due(member, NOW + delay)
  return delay
end

-- Admits a session against its team's slots, until an instant.
local function take_slot(heinzel, ends)
  local slots = B .. 'slots'
  call('ZREMRANGEBYSCORE', slots, '-inf', int(NOW))
  local has = call('ZSCORE', slots, heinzel)
  if not has and call('ZCARD', slots) >= O.slots then return false end
  if has then ends = math.max(ends, tonumber(has)) end
  call('ZADD', slots, int(ends), heinzel)
  return true
end
local function free_slot(heinzel) call('ZREM', B .. 'slots', heinzel) end

-- Whether a session waits for a person because its spine is damaged.
local function quarantined(heinzel) return (call('HGET', of(heinzel) .. ':memo', 'quarantine') or '') ~= '' end

-- Whether a session that killed workers belongs on `solo`: until nobody took it from there for `solo_wait_ms`.
local function alone(heinzel, dead)
  if dead < O.solo_claims then return false end
  return NOW < tonumber(call('HGET', of(heinzel), 'solo_until') or int(NOW + 1))
end
-- The same, and its time there begins.
local function sent_alone(heinzel, dead)
  if not alone(heinzel, dead) then return false end
  call('HSETNX', of(heinzel), 'solo_until', int(NOW + O.solo_wait_ms))
  return true
end

-- Answers a repeated operation with its first answer; nil where it is new. `A.op` names it.
local function repeated()
  local kept = given(A.op) and call('GET', B .. 'op:' .. A.op)
  return kept and cjson.decode(kept) or nil
end
local function answer(reply)
  if given(A.op) then call('SET', B .. 'op:' .. A.op, cjson.encode(reply), 'PX', int(O.op_ttl_ms)) end
  return reply
end

-- Pushes a list in pieces that Lua's stack holds.
local function push(key, items)
  for first = 1, #items, 1000 do
    call('RPUSH', key, unpack(items, first, math.min(first + 999, #items)))
  end
end
