-- uses: turns wakes
-- Accepts the wakes of a schedule's due slots and moves the schedule on, if nobody else did.
--
-- A: heinzel, expected_ms, next_ms, wakes {id, heinzel, steers}[], op. Contents: the wakes. Answers {1} or {0}.
-- due zset member slot:<heinzel>: permanent; everything that accept.lua writes; op:<op> string: op_ttl_ms
local first = repeated()
if first then return first end
local member = 'slot:' .. A.heinzel
local at = call('ZSCORE', B .. 'due', member)
if not at or tonumber(at) ~= A.expected_ms then return { 0 } end
local fresh = 0
for _, wake in ipairs(A.wakes) do
  if call('EXISTS', seen_of(wake[2], wake[1])) == 0 then fresh = fresh + 1 end
end
if fresh > 0 and call('LLEN', of(A.heinzel) .. ':inbox') + fresh > O.inbox_cap then
  count('slots_waiting')
  return { 0 }
end
accept_all(A.wakes, A.op)
if given(A.next_ms) then due(member, A.next_ms) else undue(member) end
return answer({ 1 })
