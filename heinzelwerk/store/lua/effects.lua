-- Reads a team's effects, newest first; records past their retention are left out. Writes nothing.
--
-- A: key (`effects`, `undecided` or `unknown`), limit. Answers the records.
local found = {}
for _, id in ipairs(call('ZREVRANGE', B .. A.key, 0, A.limit - 1)) do
  local raw = call('GET', B .. 'effect:' .. id)
  if raw then table.insert(found, raw) end
end
return found
