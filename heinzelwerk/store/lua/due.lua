-- Reads what is due now, oldest first. Writes nothing.
--
-- A: kind (`` for all), limit. Answers a flat list: member, due ms, solo (0|1), ...
local found = {}
local entries = call('ZRANGEBYSCORE', B .. 'due', '-inf', int(NOW), 'WITHSCORES', 'LIMIT', 0, 5000)
for index = 1, #entries, 2 do
  if #found >= A.limit * 3 then break end
  local kind, name = string.match(entries[index], '^(%a+):(.*)$')
  if A.kind == '' or A.kind == kind then
    local dead = kind == 'session' and tonumber(call('HGET', of(name), 'dead') or '0') or 0
    table.insert(found, entries[index])
    table.insert(found, entries[index + 1])
    table.insert(found, alone(name, dead) and 1 or 0)
  end
end
return found
