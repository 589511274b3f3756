-- Gives places among the requests in flight at one provider back: their requests are over, or their holders dead.
--
-- KEYS[1] begins with `hw:{provider:<name>}:`. A: holders[]. Answers how many had one.
-- flight zset: the longest lease
local ended = 0
for _, holder in ipairs(A.holders) do ended = ended + call('ZREM', B .. 'flight', holder) end
return ended
