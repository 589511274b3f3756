-- Ends leases at once whose holder is known to be dead, as if their time were over: the claims stay counted as dead.
--
-- A: holds {kind, name, token}[]. Answers how many were ended; one that another holds by now is left alone.
-- s:<heinzel>:lease, job:<id>:lease strings: lease_ms; due zset: permanent
local ended = 0
for _, hold in ipairs(A.holds) do
  local kind, name = hold[1], hold[2]
  local key = (kind == 'session' and of(name) or B .. 'job:' .. name) .. ':lease'
  if call('GET', key) == hold[3] then
    call('DEL', key)
    due(kind .. ':' .. name, NOW)
    ended = ended + 1
  end
end
return ended
