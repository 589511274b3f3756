-- uses: turns wakes ledger
-- Decides a planned effect; the first decision wins.
--
-- A: id, decision, by, digest, edited, new_sha, new_digest, reason, wakes, op. Contents: the edited text, then the wakes.
-- Answers {moved, record, detail}.
-- effect:<id> string, effect:<id>:text string: no TTL while open, then body_ttl_ms; undecided zset: entries go with the decision
-- s:<heinzel>:drafts hash: permanent while loaded; due, mail, seen, inbox as in the libraries; op:<op> string: op_ttl_ms
local first = repeated()
if first then return first end
local effect = find_effect(A.id)
if not effect then return reply('not_found') end
if effect.decision ~= 'pending' then
  local who = effect.decided_by ~= '' and effect.decided_by or 'policy'
  return reply('already_decided', effect, 'already ' .. effect.decision .. ' by ' .. who)
end
if effect.state ~= 'planned' then return reply('already_ended', effect, effect.state) end
if effect.digest ~= A.digest then return reply('digest_differs', effect, 'it changed since it was shown: look at it again') end
if given(effect.expires_ms) and effect.expires_ms <= NOW then
  finish(effect, 'refused', { decision = 'expired', decided_ms = NOW, reason = 'expired' })
  return answer(reply('refused', effect, 'expired'))
end
local said = { decision = A.decision, decided_by = A.by, decided_ms = NOW, reason = A.reason }
local text = A.edited and blob() or nil
if A.decision ~= 'approved' then
  finish(effect, 'refused', said)
else
  if text then
    call('SET', B .. 'effect:' .. effect.id .. ':text', text)
    said.edited, said.text_sha256, said.digest = true, A.new_sha, A.new_digest
  end
  move(effect, said)
  approve_text(effect)
  due('effect:' .. effect.id, NOW)
  calm('effect:' .. effect.id)
  tell(effect)
end
accept_all(A.wakes, A.op)
return answer(reply('done', effect))
