-- uses: money
-- Reads a day's money after booking what ran out.
--
-- A: day (days since 1970; -1: today), scope (`` for the team, `:<heinzel>`). Answers {spent, reserved, possible}.
-- budget:<day> hash: budget_ttl_ms; reservations hash and zset: entries are forgotten by expire_money
expire_money()
local day = A.day < 0 and today() or int(A.day)
return call('HMGET', day_key(day), 's' .. A.scope, 'r' .. A.scope, 'p' .. A.scope)
