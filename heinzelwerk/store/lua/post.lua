-- uses: turns wakes
-- Delivers mail to a turn or a session, fills the wait item that it names, makes the session due.
--
-- A: heinzel, kind, turn, fills, value, op, wake {id, cause, ...} of a steer. Contents: the mail; for a steer its wake.
-- Answers {posting, detail}.
-- s:<heinzel>:mail list: entries go with commits; s:<heinzel>:fills:<turn> hash: see commit.lua; op:<op> string: op_ttl_ms
local first = repeated()
if first then return first end
local heinzel, mail = A.heinzel, blob()
if call('SISMEMBER', B .. 'sessions', heinzel) == 0 then return { 'unknown_turn', '' } end
if not given(A.turn) then
  if A.kind == 'stop' or A.kind == 'answer' then return { 'unknown_turn', '' } end
  deliver(heinzel, mail, nil, nil, nil)
  return answer({ 'delivered', '' })
end
local turn = turn_of(heinzel, int(A.turn))
if not turn then return { 'unknown_turn', '' } end

-- A steer that came too late becomes a wake in the same conversation.
local function late_steer()
  local wake = cjson.decode(blob())
  wake.channel, wake.conversation = turn.wake.channel, turn.wake.conversation
  local reply = accept(A.wake_id, heinzel, false, cjson.encode(wake), '')
  return reply[1] == 'refused' and { 'turn_ended', reply[2] } or { 'delivered', '' }
end

if turn.ended then
  if A.kind == 'stop' or A.kind == 'answer' then return answer({ 'turn_ended', turn.state }) end
  if A.kind == 'steer' then return answer(late_steer()) end
elseif given(A.fills) then
  local item
  for _, candidate in ipairs(turn.waits or {}) do
    if candidate.id == A.fills then item = candidate end
  end
  if not item then return { 'unknown_item', '' } end
  if given(item.value) then return answer({ 'already_filled', item.value }) end
  if A.kind == 'answer' and item.deadline_ms <= NOW then return answer({ 'expired', '' }) end
end
deliver(heinzel, mail, A.turn, A.fills, A.value)
return answer({ 'delivered', '' })
