-- uses: turns snapshot
-- Reads a session for people. Writes nothing.
--
-- A: heinzel. Answers {} or {snapshot, held, due, slot}.
if call('SISMEMBER', B .. 'sessions', A.heinzel) == 0 then return {} end
local key = of(A.heinzel)
return {
  snapshot(A.heinzel, '', tonumber(call('HGET', key, 'dead') or '0')), call('EXISTS', key .. ':lease'),
  call('ZSCORE', B .. 'due', 'session:' .. A.heinzel) or '', call('ZSCORE', B .. 'due', 'slot:' .. A.heinzel) or '',
}
