-- uses: turns
-- Gives a session's lease up without a commit.
--
-- A: heinzel, token, handed_back, due_ms, holds. Answers 1, or 0 where the lease was lost.
-- s:<heinzel>:lease string: lease_ms; s:<heinzel> hash (released, dead), due zset: permanent; slots zset: entries end by score
if call('GET', of(A.heinzel) .. ':lease') ~= A.token then
  return call('HGET', of(A.heinzel), 'released') == A.token and 1 or 0
end
let_go(A.heinzel, A.handed_back, A.due_ms, A.holds)
return 1
