-- Turns: reading a record with what others filled in, mail, and the retention of a body.

local function fills_of(heinzel, number)
  local flat, fills = call('HGETALL', of(heinzel) .. ':fills:' .. number), {}
  for at = 1, #flat, 2 do fills[flat[at]] = flat[at + 1] end
  return fills, flat
end

-- A turn for looking at, never for writing back: cjson makes objects of empty lists.
local function turn_of(heinzel, number)
  local raw = call('HGET', of(heinzel) .. ':turns', number)
  if not raw then return nil end
  local turn, fills = cjson.decode(raw), fills_of(heinzel, number)
  turn.next_ms, turn.open = nil, false
  for _, item in ipairs(turn.waits or {}) do
    if not given(item.value) then item.value = fills[item.id] end
    if not given(item.value) then
      turn.open = true
      turn.next_ms = math.min(turn.next_ms or item.deadline_ms, item.deadline_ms)
    end
  end
  turn.ended = turn.state ~= 'running' and turn.state ~= 'waiting'
  turn.ready = turn.state == 'running' or (turn.state == 'waiting' and not turn.open)
  return turn
end

local function open_turns(heinzel) return call('ZRANGE', of(heinzel) .. ':open', 0, -1) end

-- Puts mail into the box, fills the item that it names if the turn still waits, and makes the session due.
local function deliver(heinzel, mail, turn, item, value)
  if given(turn) and given(item) and call('ZSCORE', of(heinzel) .. ':open', int(turn)) then
    call('HSETNX', of(heinzel) .. ':fills:' .. int(turn), item, given(value) and value or '')
  end
  call('SADD', B .. 'sessions', heinzel)
  call('RPUSH', of(heinzel) .. ':mail', mail)
  due('session:' .. heinzel, NOW)
end

local function expire_words(heinzel, number)
  local ttl = int(O.body_ttl_ms)
  for _, part in ipairs({ ':body:', ':history:', ':calls:' }) do
    call('PEXPIRE', of(heinzel) .. part .. number, ttl)
  end
  call('HSET', of(heinzel) .. ':words', 'e' .. number, int(NOW + O.body_ttl_ms))
end

-- A turn's words may go once its last effect has ended.
local function words_may_go(heinzel, number)
  local words = of(heinzel) .. ':words'
  if call('HEXISTS', words, 'e' .. number) == 1 then return end
  if tonumber(call('HGET', words, number) or '0') > 0 then
    call('HSET', words, 'x' .. number, '1')
  else
    call('HDEL', words, number, 'x' .. number)
    expire_words(heinzel, number)
  end
end

-- What was written after the retention began ends with the rest.
local function keep_expiry(heinzel, number)
  local ends = call('HGET', of(heinzel) .. ':words', 'e' .. number)
  if not ends then return end
  for _, part in ipairs({ ':body:', ':history:', ':calls:' }) do
    call('PEXPIREAT', of(heinzel) .. part .. number, ends)
  end
end

local function effect_opened(heinzel, number) call('HINCRBY', of(heinzel) .. ':words', int(number), 1) end
local function effect_ended(heinzel, number)
  number = int(number)
  local words = of(heinzel) .. ':words'
  if call('HINCRBY', words, number, -1) > 0 then return end
  call('HDEL', words, number)
  if call('HDEL', words, 'x' .. number) == 1 then expire_words(heinzel, number) end
end

-- A turn that can go on and is not the one that was just run: handed back earlier, or its last wait was filled while the
-- session was held, and the holder may have taken the mail that said so.
local function any_ready(heinzel)
  for _, number in ipairs(open_turns(heinzel)) do
    local turn = turn_of(heinzel, number)
    if turn and turn.ready then return true end
  end
  return false
end

-- The lease ends, the team's slot is free, and `due` says when somebody must look again.
local function let_go(heinzel, handed_back, due_ms, holds)
  local key, member = of(heinzel), 'session:' .. heinzel
  local token = call('GET', key .. ':lease')
  call('DEL', key .. ':lease')
  call('HSET', key, 'released', token or '', 'dead', '0')
  free_slot(heinzel)
  local waking = call('EXISTS', key .. ':mail') == 1 or (not holds and call('EXISTS', key .. ':inbox') == 1)
  if handed_back or waking then
    due(member, NOW)
  elseif given(due_ms) then
    due(member, due_ms)
  else
    undue(member)
  end
end
