-- uses: turns ledger
-- Reads an effect by id or an unambiguous beginning, with its text if wanted. Writes nothing.
--
-- A: id, text. Answers {record, text}.
local effect = find_effect(A.id)
if not effect then return { '', '' } end
local text = A.text and call('GET', B .. 'effect:' .. effect.id .. ':text') or ''
return { call('GET', B .. 'effect:' .. effect.id), text }
