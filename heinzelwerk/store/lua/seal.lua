-- uses: turns
-- Replaces the oldest spine lines by their seal, under the session's lease, and forgets turns past the retention.
--
-- A: heinzel, token, count, last, forget (turn numbers). Content: the seal. Answers 1, or 0 where the lease was lost.
-- s:<heinzel>:spine list, :turns hash: shortened here; s:<heinzel> hash (sealed, seal): permanent
local key = of(A.heinzel)
if call('GET', key .. ':lease') ~= A.token then return 0 end
if A.count > 0 then
  call('LTRIM', key .. ':spine', int(A.count), -1)
  call('HSET', key, 'sealed', int(A.last), 'seal', blob())
end
for _, number in ipairs(A.forget) do
  number = int(number)
  call('HDEL', key .. ':turns', number)
  call('HDEL', key .. ':words', number, 'x' .. number, 'e' .. number)
end
call('DEL', key .. ':lease')
-- A ring in the meantime found the session held and moved it to the lease's end.
if call('EXISTS', key .. ':mail', key .. ':inbox') > 0 then due('session:' .. A.heinzel, NOW) end
return 1
