-- uses: turns
-- Reads turn records with what others filled in, in the order asked for, gaps left out. Writes nothing.
--
-- A: heinzel, numbers. Answers {records, fills}.
local raws, fills = {}, {}
for _, number in ipairs(A.numbers) do
  local raw = call('HGET', of(A.heinzel) .. ':turns', int(number))
  if raw then
    local _, flat = fills_of(A.heinzel, int(number))
    table.insert(raws, raw)
    table.insert(fills, flat)
  end
end
return { raws, fills }
