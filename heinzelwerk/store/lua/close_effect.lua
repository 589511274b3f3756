-- uses: turns wakes ledger
-- Moves an effect on after an attempt, or after a look at its target.
--
-- A: id, version, to, reason, revision, seen, retry_in_ms, wakes, op. Contents: the wakes, which an output that went
-- unattended causes when it is placed. Answers {moved, record, detail}.
-- effect:<id> string, effect:<id>:text string: no TTL while open, then body_ttl_ms; target:<target> zset: tidied here
-- due, mail, fills, words, drafts, seen, inbox as in the libraries; op:<op> string: op_ttl_ms
local first = repeated()
if first then return first end
local effect = find_effect(A.id)
if not effect then return reply('not_found') end
if ENDED[effect.state] then return reply('already_ended', effect, effect.state) end
if effect.version ~= A.version then return reply('stale', effect) end
local changes = { reason = A.reason }
if A.revision ~= '' then changes.revision = A.revision end
if A.seen ~= '' then changes.seen = A.seen end
if ENDED[A.to] then
  finish(effect, A.to, changes)
  if A.to == 'completed' and effect.decision == 'unattended' then
    approve_text(effect)
    accept_all(A.wakes, A.op)
  end
  return answer(reply('done', effect))
end
local member, looked_again = 'effect:' .. effect.id, effect.state == A.to
calm(member)
changes.state = A.to
if A.to == 'planned' then changes.not_before_ms, changes.deadline_ms = NOW + A.retry_in_ms, null end
move(effect, changes)
if A.to == 'planned' or A.retry_in_ms > 0 then due(member, NOW + A.retry_in_ms) else undue(member) end
wake_target(effect)
-- A target that cannot be read is looked at for as long as it takes: only a change of state is news.
if not looked_again then tell(effect) end
return answer(reply('done', effect))
