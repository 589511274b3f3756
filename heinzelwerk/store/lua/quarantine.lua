-- Sets a session with a damaged spine aside, or lets it go on as it is.
--
-- A: heinzel, why (none: lift the mark), token (its holder's, who gives the lease up with it; none: the lease stays).
-- Answers 1, or 0 where the session is unknown, the lease was lost, or there is no mark to lift.
-- s:<heinzel>:memo hash (quarantine; damage_accepted `<seq> <head>`): permanent, s:<heinzel> hash (dead): permanent
-- due zset, backoff hash: permanent; slots zset: entries end by score
local key, member = of(A.heinzel), 'session:' .. A.heinzel
if call('SISMEMBER', B .. 'sessions', A.heinzel) == 0 then return 0 end
if given(A.why) then
  if given(A.token) then
    if call('GET', key .. ':lease') ~= A.token then return 0 end
    call('DEL', key .. ':lease')
    call('HSET', key, 'dead', 0)
    undue(member)
    free_slot(A.heinzel)
  end
  call('HSET', key .. ':memo', 'quarantine', A.why)
  return 1
end
if not quarantined(A.heinzel) then return 0 end
local chain = call('HMGET', key, 'seq', 'head')
call('HDEL', key .. ':memo', 'quarantine')
call('HSET', key .. ':memo', 'damage_accepted', (chain[1] or '0') .. ' ' .. (chain[2] or ''))
due(member, NOW)
return 1
