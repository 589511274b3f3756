-- Money: per team and UTC day (days since 1970), in micro-dollars. Fields of a day's hash: `s` spent, `r` reserved,
-- `p` possible, each for the team and as `s:<heinzel>` for a session. A reservation is `<day> <state> <amount>`.

local DAY = 86400000
local RESERVED, ENDS = B .. 'reservations', B .. 'reservations:due'
local function today() return int(math.floor(NOW / DAY)) end
local function day_key(day) return B .. 'budget:' .. day end

local function book(day, word, heinzel, amount)
  local key = day_key(day)
  call('HINCRBY', key, word, int(amount))
  call('HINCRBY', key, word .. ':' .. heinzel, int(amount))
  call('PEXPIRE', key, int(O.budget_ttl_ms))
end

local function reservation(name)
  local kept = call('HGET', RESERVED, name)
  if not kept then return nil end
  local day, state, amount = string.match(kept, '^(%d+) (%a+) (%-?%d+)$')
  return { day = day, state = state, amount = tonumber(amount) }
end

local function keep(name, day, state, amount, ends)
  call('HSET', RESERVED, name, day .. ' ' .. state .. ' ' .. int(amount))
  call('ZADD', ENDS, int(ends), name)
end

-- Reservations that ran out are booked as possibly spent; closed ones are forgotten after a while.
local function expire_money()
  for _, name in ipairs(call('ZRANGEBYSCORE', ENDS, '-inf', int(NOW), 'LIMIT', 0, 200)) do
    local kept = reservation(name)
    if kept and kept.state == 'open' then
      local heinzel = string.match(name, '^[^/]+')
      book(kept.day, 'r', heinzel, -kept.amount)
      book(kept.day, 'p', heinzel, kept.amount)
      keep(name, kept.day, 'possible', kept.amount, NOW + O.budget_ttl_ms)
    else
      call('HDEL', RESERVED, name)
      call('ZREM', ENDS, name)
    end
  end
end

local function settle(heinzel, id, amount, possible)
  local name = heinzel .. '/' .. id
  local kept = reservation(name)
  if kept and kept.state == 'settled' then return end
  local day = kept and kept.day or today()
  if kept and kept.state == 'open' then book(day, 'r', heinzel, -kept.amount) end
  if kept and kept.state == 'possible' then book(day, 'p', heinzel, -kept.amount) end
  book(day, possible and 'p' or 's', heinzel, amount)
  keep(name, day, possible and 'possible' or 'settled', amount, NOW + (possible and O.budget_ttl_ms or O.settled_ttl_ms))
end

local function total(suffix)
  local sum = 0
  for _, value in ipairs(call('HMGET', day_key(today()), 's' .. suffix, 'r' .. suffix, 'p' .. suffix)) do
    sum = sum + tonumber(value or '0')
  end
  return sum
end

-- The cap that a reservation would break once the settlements are booked: `session`, `team` or nil.
local function over_cap(heinzel, want, settling)
  local freed = 0
  for _, entry in ipairs(settling) do
    local kept = reservation(heinzel .. '/' .. entry[1])
    if not kept then
      freed = freed - entry[2]
    elseif kept.state ~= 'settled' and kept.day == today() then
      freed = freed + kept.amount - entry[2]
    end
  end
  if given(want.session_day) and total(':' .. heinzel) - freed + want.amount > want.session_day then return 'session' end
  if given(want.team_day) and total('') - freed + want.amount > want.team_day then return 'team' end
  return nil
end

-- What session and team may still spend today; nil where neither has a cap.
local function day_left(heinzel, caps)
  local left = nil
  if given(caps[1]) then left = caps[1] - total(':' .. heinzel) end
  if given(caps[2]) then left = math.min(left or math.huge, caps[2] - total('')) end
  return left and math.max(0, left)
end

local function reserve(heinzel, want)
  local name = heinzel .. '/' .. want.id
  if call('HEXISTS', RESERVED, name) == 1 then return end
  book(today(), 'r', heinzel, want.amount)
  keep(name, today(), 'open', want.amount, NOW + want.ttl_ms)
end
