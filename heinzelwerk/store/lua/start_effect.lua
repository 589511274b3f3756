-- uses: turns ledger
-- Begins an attempt at an effect: consumes the approval and checks everything again.
--
-- A: id, version, timeout_ms, margin_ms, unattended, op. Answers {moved, record, detail}.
-- effect:<id> string: no TTL while open; due zset, undecided zset: entries go with the effect; op:<op> string: op_ttl_ms
local first = repeated()
if first then return first end
local effect = find_effect(A.id)
if not effect then
  undue('effect:' .. A.id)
  return reply('not_found')
end
local member = 'effect:' .. effect.id

local function blocked()
  if ENDED[effect.state] then
    undue(member)
    return reply('already_ended', effect, effect.state)
  end
  if effect.version ~= A.version then return reply('stale', effect) end
  if effect.state ~= 'planned' then
    local running = effect.state == 'started' and effect.deadline_ms + A.margin_ms > NOW
    return reply(running and 'held_elsewhere' or 'stale', effect, effect.state)
  end
  if effect.not_before_ms > NOW then
    due(member, effect.not_before_ms)
    return reply('not_due', effect)
  end
end

-- Effects of one target go one at a time, those of one session in turn order.
local function target_busy()
  for _, other in ipairs(rivals(effect)) do
    -- One past its deadline is in doubt until it was read back: placing over it would hide whether it had arrived.
    if other.state == 'started' then
      local free = other.deadline_ms + A.margin_ms
      due(member, free > NOW and free or NOW + O.ring_first_ms)
      return reply('target_busy', effect, 'another effect writes to this target')
    end
    local waits = other.state == 'planned' and may_start(other) and (not given(other.expires_ms) or other.expires_ms > NOW)
    if waits and other.heinzel == effect.heinzel and other.turn < effect.turn then
      due(member, NOW + O.ring_first_ms)
      return reply('target_busy', effect, "an earlier turn's effect on this target goes first")
    end
  end
end

local function not_allowed()
  if effect.decision == 'pending' and A.unattended or may_start(effect) and (effect.decision == 'approved' or A.unattended) then
    return nil
  end
  due(member, given(effect.expires_ms) and effect.expires_ms or NOW)
  if effect.decision == 'pending' then return reply('refused', effect, 'it waits for a person: approve or decline it') end
  move(effect, { decision = 'pending' })
  return reply('refused', effect, 'the policy no longer lets it go unattended: it waits for a person')
end

-- Whether the contract publishes to this place. What Heinzelwerk keeps itself is declared without arguments.
local function is_here(wanted)
  local declared, approved = wanted.args or {}, effect.arguments or {}
  if next(declared) == nil then return true end
  for name, value in pairs(declared) do
    if approved[name] ~= value then return false end
  end
  for name in pairs(approved) do
    if declared[name] == nil then return false end
  end
  return true
end

local function no_longer_wanted()
  local entry, publishes, here = call('HGET', B .. 'contracts', effect.heinzel), chat(effect), chat(effect)
  for _, wanted in ipairs(entry and cjson.decode(string.sub(entry, 3)).publishes or {}) do
    if wanted.action == effect.action and wanted.output == effect.output then
      publishes, here = true, here or is_here(wanted)
    end
  end
  if not entry or not publishes then return 'the contract no longer publishes this' end
  if not here then return 'the contract publishes this to another place now: wake it, and approve the draft for that place' end
  for _, other in ipairs(rivals(effect)) do
    if same_offer(other, effect) and other.turn > effect.turn and other.state == 'completed' then
      return "a later turn's text was placed"
    end
  end
end

local function refuse(reason, decision)
  finish(effect, 'refused', { reason = reason, decision = decision })
  return reply('refused', effect, reason)
end

local no = blocked() or target_busy()
if no then return no end
if given(effect.expires_ms) and effect.expires_ms <= NOW then
  return answer(refuse('expired', effect.decision == 'pending' and 'expired' or effect.decision))
end
no = not_allowed()
if no then return no end
local reason = no_longer_wanted()
if reason then return answer(refuse(reason, effect.decision)) end
move(effect, {
  state = 'started', decision = effect.decision == 'pending' and 'unattended' or effect.decision,
  attempts = effect.attempts + 1, started_ms = NOW, deadline_ms = NOW + A.timeout_ms, reason = '',
})
due(member, NOW + A.timeout_ms + A.margin_ms)
calm(member)
return answer(reply('done', effect))
