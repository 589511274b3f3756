-- Takes a place among the requests in flight at one provider, or says that there is none for this team now.
--
-- KEYS[1] begins with `hw:{provider:<name>}:`. A: holder, team, limit, ttl_ms, asking_ms. Answers 1 or 0. The same holder has one
-- place: taken again it is only made to last, so a repeated command is harmless.
-- flight zset holder -> end: the longest lease; asking zset team -> end: asking_ms; served zset team -> last place: an hour
local flight, asking, served = B .. 'flight', B .. 'asking', B .. 'served'
local function lasts(key, ms) call('PEXPIRE', key, int(math.max(ms, call('PTTL', key)))) end
call('ZREMRANGEBYSCORE', flight, '-inf', int(NOW))
call('ZREMRANGEBYSCORE', asking, '-inf', int(NOW))
local place = call('ZSCORE', flight, A.holder)
if not place then
  local free, mine = A.limit - call('ZCARD', flight), tonumber(call('ZSCORE', served, A.team) or '0')
  for _, other in ipairs(call('ZRANGE', asking, 0, -1)) do
    if other ~= A.team and tonumber(call('ZSCORE', served, other) or '0') < mine then free = free - 1 end
  end
  if free < 1 then
    call('ZADD', asking, int(NOW + A.asking_ms), A.team)
    lasts(asking, A.asking_ms)
    return 0
  end
  call('ZREM', asking, A.team)
  call('ZADD', served, int(NOW), A.team)
  lasts(served, 3600000)
end
call('ZADD', flight, int(NOW + A.ttl_ms), A.holder)
lasts(flight, A.ttl_ms)
return 1
