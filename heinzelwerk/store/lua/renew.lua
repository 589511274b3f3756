-- Extends leases that a process holds, all of a team's in one call.
--
-- A: holds {kind, name, token}[]. Answers the 1-based places of those that were lost.
-- s:<heinzel>:lease, job:<id>:lease strings: lease_ms; due zset: permanent; slots zset: entries end by score
local lost, ends = {}, NOW + O.lease_ms
for at, hold in ipairs(A.holds) do
  local kind, name = hold[1], hold[2]
  local key = (kind == 'session' and of(name) or B .. 'job:' .. name) .. ':lease'
  if call('GET', key) == hold[3] then
    call('PEXPIRE', key, int(O.lease_ms))
    due(kind .. ':' .. name, ends)
    if kind == 'session' then call('ZADD', B .. 'slots', int(ends), name) end
  else
    table.insert(lost, at)
  end
end
return lost
