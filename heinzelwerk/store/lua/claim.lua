-- uses: turns snapshot
-- Takes a session's lease and reads everything that its holder needs, or says why not.
--
-- A: heinzel, nonce, solo (nothing runs beside it here). Answers {`held`|`quarantined`|`nothing_due`|`newer`|`solo`|`no_slot`} or the snapshot (lib_snapshot.lua).
-- s:<heinzel>:lease string `<counter>-<nonce>`: lease_ms; s:<heinzel> hash (counter, dead, format): permanent
-- due zset, backoff hash: permanent; slots zset: entries end by score; counters hash: permanent
local heinzel, key, member = A.heinzel, of(A.heinzel), 'session:' .. A.heinzel
local known = call('HMGET', key, 'counter', 'dead', 'format')
local counter, dead = tonumber(known[1] or '0'), tonumber(known[2] or '0')

local function nothing_due()
  if call('EXISTS', key .. ':mail', key .. ':inbox') > 0 then return false end
  local next_ms
  local open = open_turns(heinzel)
  -- What a revoked contract's turns wait for is waited for no more.
  if #open > 0 and call('HEXISTS', B .. 'contracts', heinzel) == 0 then return false end
  for _, number in ipairs(open) do
    local turn = turn_of(heinzel, number)
    if turn and (turn.ready or (turn.next_ms and turn.next_ms <= NOW)) then return false end
    if turn and turn.next_ms then next_ms = math.min(next_ms or turn.next_ms, turn.next_ms) end
  end
  undue(member)
  if next_ms then due(member, next_ms) end
  return true
end

local holder = call('GET', key .. ':lease')
if holder then
  if holder == int(counter) .. '-' .. A.nonce then return snapshot(heinzel, holder, math.max(dead - 1, 0)) end
  count('doorbells_held')
  return { 'held' }
end
if quarantined(heinzel) then
  undue(member)
  free_slot(heinzel)
  return { 'quarantined' }
end
if nothing_due() then
  count('doorbells_idle')
  free_slot(heinzel)
  return { 'nothing_due' }
end
if tonumber(known[3] or '0') > O.format then
  bump(member)
  free_slot(heinzel)
  return { 'newer' }
end
-- Rung for before its last death: not beside others; the caller rings again.
if not A.solo and sent_alone(heinzel, dead) then
  due(member, NOW)
  free_slot(heinzel)
  count('doorbells_solo')
  return { 'solo' }
end
if not take_slot(heinzel, NOW + O.lease_ms) then
  count('doorbells_no_slot')
  return { 'no_slot' }
end
local token = int(counter + 1) .. '-' .. A.nonce
call('SET', key .. ':lease', token, 'NX', 'PX', int(O.lease_ms))
call('HSET', key, 'counter', int(counter + 1), 'dead', int(dead + 1))
call('HDEL', key, 'solo_until')
due(member, NOW + O.lease_ms)
calm(member)
return snapshot(heinzel, token, dead)
