-- Reads spine lines; the seal stands for those that prune took away. Writes nothing.
--
-- A: heinzel, after, limit. Answers the lines.
local known = call('HMGET', of(A.heinzel), 'sealed', 'seal')
local sealed, limit = tonumber(known[1] or "0"), A.limit
local seal = known[2] and A.after < sealed
if seal then limit = limit - 1 end
local first = math.max(0, A.after - sealed)
local lines = limit > 0 and call('LRANGE', of(A.heinzel) .. ':spine', int(first), int(first + limit - 1)) or {}
if seal then table.insert(lines, 1, known[2]) end
return lines
