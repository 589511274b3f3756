-- uses: turns wakes money ledger
-- One write of a lease holder: everything or nothing, once, under its token and the expected sequence number.
--
-- A: see sessions.py `_arguments`; contents in the order in which they are taken below.
-- Answers {state, now ms, over, unread mail}.
-- s:<heinzel> hash (seq, head, last_turn, format, dead, op, reply, released): permanent, the session's head
-- s:<heinzel>:spine list of lines, :turns hash of records, :memo hash: permanent until prune seals them
-- s:<heinzel>:open zset of turn numbers, :inbox and :mail lists: permanent, entries go as they are worked off
-- s:<heinzel>:fills:<turn> hash: no TTL while the turn is open, then body_ttl_ms
-- s:<heinzel>:body:<turn> hash, :history:<turn> list, :calls:<turn> hash: no TTL until the turn and its last effect ended,
--   then body_ttl_ms; s:<heinzel>:words hash counts those effects: permanent
-- s:<heinzel>:drafts hash (n: newest, a: approved): permanent while the contract is loaded
-- and what the libraries write: wakes, money, effects, jobs, due, slots
local heinzel, key = A.heinzel, of(A.heinzel)
local kept = call('HMGET', key, 'op', 'reply', 'seq')
if kept[1] == A.op then return { 'done', kept[2], '', call('LLEN', key .. ':mail') } end
if call('GET', key .. ':lease') ~= A.token then return { 'lease_lost', int(NOW), '' } end
if tonumber(kept[3] or '0') ~= A.seq then return { 'out_of_sequence', int(NOW), '' } end
if A.reserve or A.settle or A.jobs then expire_money() end
local over = A.reserve and over_cap(heinzel, A.reserve, A.settle or {})
if over then return { 'over_cap', int(NOW), over } end

local fields = { 'op', A.op, 'reply', int(NOW), 'format', O.format }
local function set(name, value)
  table.insert(fields, name)
  table.insert(fields, value)
end

local function write_lines()
  local lines = {}
  for at = 1, A.lines do lines[at] = blob() end
  push(key .. ':spine', lines)
  set('seq', int(A.seq + A.lines))
  if given(A.head) then set('head', A.head) end
end

local function write_turns()
  for _, turn in ipairs(A.turns) do
    local number, ended = int(turn[1]), turn[2] == 1
    call('HSET', key .. ':turns', number, blob())
    if ended then
      call('ZREM', key .. ':open', number)
      call('PEXPIRE', key .. ':fills:' .. number, int(O.body_ttl_ms))
    else
      call('ZADD', key .. ':open', number, number)
    end
  end
  if given(A.new_turns) then set('last_turn', int(A.new_turns)) end
end

local function write_wakes()
  for _, taken in ipairs(A.taken or {}) do
    call('LREM', key .. ':inbox', 1, blob())
    local seen = seen_of(heinzel, taken[1])
    if given(taken[2]) then call('HSET', seen, 't', int(taken[2])) end
    if given(taken[3]) then ended_key(seen, taken[3]) end
  end
  for _, ended in ipairs(A.ended or {}) do ended_key(seen_of(heinzel, ended[1]), ended[2]) end
  for at = #(A.returned or {}), 1, -1 do
    call('HSETNX', seen_of(heinzel, A.returned[at]), 'n', '')
    call('LPUSH', key .. ':inbox', int(NOW) .. ' ' .. blob())
  end
  if A.mail > 0 then call('LTRIM', key .. ':mail', int(A.mail), -1) end
end

local function write_words()
  for _, body in ipairs(A.bodies or {}) do call('HSET', key .. ':body:' .. int(body[1]), body[2], blob()) end
  for _, history in ipairs(A.histories or {}) do
    local list, items = key .. ':history:' .. int(history[1]), {}
    if history[2] == 0 then call('DEL', list) else call('LTRIM', list, 0, int(history[2] - 1)) end
    for at = 1, history[3] do items[at] = blob() end
    push(list, items)
  end
  for _, entry in ipairs(A.calls or {}) do call('HSET', key .. ':calls:' .. int(entry[1]), entry[2], blob()) end
  for _, number in ipairs(A.late or {}) do keep_expiry(heinzel, int(number)) end
end

local function write_money()
  for _, entry in ipairs(A.settle or {}) do settle(heinzel, entry[1], entry[2], entry[3]) end
  if A.reserve then reserve(heinzel, A.reserve) end
end

local function write_asks()
  for _, draft in ipairs(A.drafts or {}) do
    local field, text = 'n:' .. draft[1], blob()
    -- A turn that waited for an answer may draft after a later one: newest is the later turn's.
    local earlier = tonumber(string.match(call('HGET', key .. ':drafts', field) or '', '^%d+') or '0')
    if earlier <= draft[2] then call('HSET', key .. ':drafts', field, int(draft[2]) .. ' ' .. draft[3] .. ' ' .. text) end
  end
  for _ = 1, A.effects or 0 do
    local effect = record_of(blob())
    plan(effect, blob())
  end
  for _ = 1, A.jobs or 0 do queue_job(record_of(blob()), A.job_caps) end
  if A.wakes then accept_all(A.wakes, A.op) end
  for _, number in ipairs(A.expire or {}) do words_may_go(heinzel, int(number)) end
  if A.memo then call('HSET', key .. ':memo', unpack(A.memo)) end
end

write_lines()
write_turns()
write_wakes()
write_words()
write_money()
write_asks()
if A.progress then
  set('dead', '0')
  calm('session:' .. heinzel)
end
call('HSET', key, unpack(fields))
if given(A.after) then let_go(heinzel, A.after == 'hand_back' or any_ready(heinzel), A.due_ms, A.holds) end
return { 'done', int(NOW), '', call('LLEN', key .. ':mail') }
