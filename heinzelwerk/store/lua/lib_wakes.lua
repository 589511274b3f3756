-- Wakes: accepting one, wherever it comes from.

-- The running chat turn of the same conversation, which a message joins.
local function steerable(heinzel, wake)
  local numbers = open_turns(heinzel)
  for at = #numbers, 1, -1 do
    local turn = turn_of(heinzel, numbers[at])
    if turn and turn.state == 'running' and turn.wake.cause == 'asked' then
      local theirs = given(turn.wake.conversation) and turn.wake.conversation or ''
      local ours = given(wake.conversation) and wake.conversation or ''
      if theirs == ours then return numbers[at] end
    end
  end
  return nil
end

local function why_not(heinzel)
  local entry = call('HGET', B .. 'contracts', heinzel)
  if not entry then return call('EXISTS', B .. 'generation') == 1 and 'no_contract' or 'no_team' end
  if string.sub(entry, 1, 1) == '0' then return 'broken' end
  return nil
end

-- Whether there is no place for one more. One wake for a new input always has one: it says nothing but that there is
-- something to read, and whichever of them runs reads all of it.
local function full(heinzel, steers, document)
  local box = of(heinzel) .. (steers and ':mail' or ':inbox')
  if call('LLEN', box) < O.inbox_cap then return false end
  if cjson.decode(document).cause ~= 'inputs' then return true end
  for _, waiting in ipairs(call('LRANGE', box, 0, -1)) do
    if cjson.decode(string.match(waiting, '^%d+ (.*)$')).cause == 'inputs' then return true end
  end
  return false
end

-- A key is known to its session: one event or one new output may wake several.
local function seen_of(heinzel, id) return B .. 'seen:' .. heinzel .. ':' .. id end

local function ended_key(seen, verdict)
  call('HSET', seen, 'v', verdict)
  call('PEXPIRE', seen, int(O.seen_ttl_ms))
end

-- `id` names the wake's key, `document` is the wake as JSON, `steers` says that it may join a running turn.
-- Answers disposition, reason and turn.
local accept
function accept(id, heinzel, steers, document, nonce)
  local seen = seen_of(heinzel, id)
  local known = call('HMGET', seen, 'n', 't')
  if known[1] then
    local turn = known[2] or ''
    if nonce ~= '' and known[1] == nonce then return { 'accepted', '', turn } end
    count('wakes_duplicate')
    return { 'duplicate', '', turn }
  end
  local reason = why_not(heinzel)
  if not reason and full(heinzel, steers, document) then reason = 'inbox_full' end
  if reason then
    count('wakes_refused')
    return { 'refused', reason, '' }
  end
  if steers then
    local wake = cjson.decode(document)
    local number = steerable(heinzel, wake)
    if not number then return accept(id, heinzel, false, document, nonce) end
    local mail = { id = id, kind = 'steer', turn = tonumber(number), text = wake.text, by = wake.by }
    call('HSET', seen, 'n', nonce, 't', number)
    ended_key(seen, 'steered')
    deliver(heinzel, cjson.encode(mail), nil, nil, nil)
    return { 'accepted', '', number }
  end
  call('HSET', seen, 'n', nonce)
  call('SADD', B .. 'sessions', heinzel)
  call('RPUSH', of(heinzel) .. ':inbox', int(NOW) .. ' ' .. document)
  due('session:' .. heinzel, NOW)
  return { 'accepted', '', '' }
end

-- Accepts wakes that come with another script: `entries` are {id, heinzel, steers}, their documents the next contents.
local function accept_all(entries, nonce)
  for _, wake in ipairs(entries) do accept(wake[1], wake[2], wake[3] == 1, blob(), nonce) end
end
