-- Reads the unread stops and steers of sessions that a process runs.
--
-- A: heinzels. Answers a list per session, empty where there is none. Writes nothing.
local found = {}
for at, heinzel in ipairs(A.heinzels) do
  found[at] = {}
  for _, raw in ipairs(call('LRANGE', of(heinzel) .. ':mail', 0, -1)) do
    local kind = cjson.decode(raw).kind
    if kind == 'stop' or kind == 'steer' then table.insert(found[at], raw) end
  end
end
return found
