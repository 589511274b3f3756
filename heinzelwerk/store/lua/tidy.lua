-- Drops ledger entries whose records have expired.
--
-- A: limit. Answers how many.
-- effects zset by creation, effects:ids zset by name: their entries end here, after the record's TTL
local gone = 0
for _, id in ipairs(call('ZRANGE', B .. 'effects', 0, A.limit - 1)) do
  if call('EXISTS', B .. 'effect:' .. id) == 0 then
    call('ZREM', B .. 'effects', id)
    call('ZREM', B .. 'effects:ids', id)
    gone = gone + 1
  end
end
return gone
