-- The effect ledger and the jobs. Their records have no lists, so they may go through cjson.

local ENDED = { completed = true, failed = true, refused = true }
local function may_start(effect) return effect.decision == 'approved' or effect.decision == 'unattended' end
local function chat(effect) return given(effect.call) end
local function undecided(effect) return effect.state == 'planned' and effect.decision == 'pending' end

-- A record for writing back. An empty object is left out: not every cjson writes it as an object again.
local function record_of(raw)
  local record = cjson.decode(raw)
  for name, value in pairs(record) do
    if type(value) == 'table' and next(value) == nil then record[name] = nil end
  end
  return record
end

local function effect_of(id)
  local raw = call('GET', B .. 'effect:' .. id)
  return raw and record_of(raw) or nil
end

-- An effect by id, or by an unambiguous beginning of at least four characters.
local function find_effect(id)
  local effect = effect_of(id)
  if effect or #id < 4 then return effect end
  local found = call('ZRANGEBYLEX', B .. 'effects:ids', '[' .. id, '[' .. id .. '\255', 'LIMIT', 0, 2)
  return #found == 1 and effect_of(found[1]) or nil
end

local function rivals(effect)
  local others = {}
  for _, id in ipairs(call('ZRANGE', B .. 'target:' .. effect.target, 0, -1)) do
    local other = id ~= effect.id and effect_of(id) or nil
    if other then
      table.insert(others, other)
    elseif id ~= effect.id then
      call('ZREM', B .. 'target:' .. effect.target, id)
    end
  end
  return others
end

local function same_offer(one, other)
  return one.heinzel == other.heinzel and one.output == other.output and one.action == other.action
    and not chat(one) and not chat(other)
end

local function store(effect)
  call('SET', B .. 'effect:' .. effect.id, cjson.encode(effect))
  for name, belongs in pairs({ undecided = undecided(effect), unknown = effect.state == 'unknown_after_crash' }) do
    if belongs then call('ZADD', B .. name, int(effect.created_ms), effect.id) else call('ZREM', B .. name, effect.id) end
  end
end

local function move(effect, changes)
  for name, value in pairs(changes) do effect[name] = value end
  effect.version = effect.version + 1
  store(effect)
end

-- Mails the session about a transition; the end of a chat proposal fills its wait item.
local function tell(effect)
  local by = effect.decided_by ~= '' and effect.decided_by or nil
  local data = { effect = effect.id, state = effect.state, decision = effect.decision, by = by or null }
  if effect.reason ~= '' then data.reason = effect.reason end
  local mail = { id = 'effect/' .. effect.id .. '/' .. int(effect.version), kind = 'effect_moved', turn = effect.turn, by = by, data = data }
  if chat(effect) and ENDED[effect.state] then
    local turn = turn_of(effect.heinzel, int(effect.turn))
    for _, item in ipairs(turn and turn.waits or {}) do
      if item.call == effect.call then mail.fills, mail.value = item.id, effect.state end
    end
  end
  deliver(effect.heinzel, cjson.encode(mail), effect.turn, mail.fills, mail.value)
end

-- What waited for the target may go now.
local function wake_target(effect)
  for _, other in ipairs(rivals(effect)) do
    if other.state == 'planned' and may_start(other) then due('effect:' .. other.id, math.max(NOW, other.not_before_ms)) end
  end
end

-- Of ended effects a target remembers only the newest completed one of each output: it is what `newer` is asked of.
local function tidy_target(effect)
  local key = B .. 'target:' .. effect.target
  if effect.state ~= 'completed' or chat(effect) then return call('ZREM', key, effect.id) end
  for _, other in ipairs(rivals(effect)) do
    if other.state == 'completed' and same_offer(other, effect) then
      call('ZREM', key, other.turn < effect.turn and other.id or effect.id)
    end
  end
end

local function finish(effect, state, changes)
  changes.state, changes.ended_ms = state, NOW
  move(effect, changes)
  undue('effect:' .. effect.id)
  call('PEXPIRE', B .. 'effect:' .. effect.id, int(O.body_ttl_ms))
  call('PEXPIRE', B .. 'effect:' .. effect.id .. ':text', int(O.body_ttl_ms))
  effect_ended(effect.heinzel, effect.turn)
  tidy_target(effect)
  wake_target(effect)
  tell(effect)
end

-- The text becomes the output's last approved draft, unless a later turn's is. A chat's write, a lesson and an amendment are
-- no draft of an output, though an output may have the same name.
local NO_DRAFT = { ['lesson.keep'] = true, ['contract.amend'] = true }
local function approve_text(effect)
  local text = call('GET', B .. 'effect:' .. effect.id .. ':text')
  if not text or effect.output == '' or chat(effect) or NO_DRAFT[effect.action] then return end
  local drafts, field = of(effect.heinzel) .. ':drafts', 'a:' .. effect.output
  local earlier = tonumber(string.match(call('HGET', drafts, field) or '', '^%d+') or '0')
  if earlier <= effect.turn then call('HSET', drafts, field, int(effect.turn) .. ' ' .. effect.text_sha256 .. ' ' .. text) end
end

local function offered(effect)
  return effect.state == 'started' or effect.state == 'completed' or effect.state == 'unknown_after_crash'
    or (effect.state == 'planned' and (may_start(effect) or undecided(effect)))
end
local function question(effect) return (string.gsub(effect.key, '/[^/]*$', '')) end

-- A new effect. An id that is there already stays as it is; older undecided offers go, an older one is born superseded.
-- One that is born failed (no publisher, no target) offers nothing and ends here.
local function plan(effect, text)
  if call('EXISTS', B .. 'effect:' .. effect.id) == 1 then return end
  effect.created_ms, effect.expires_ms = NOW, NOW + O.approval_ttl_ms
  if text == '' then
    local turn, sha, newest = string.match(call('HGET', of(effect.heinzel) .. ':drafts', 'n:' .. effect.output) or '', '^(%d+) (%S+) (.*)$')
    if turn and sha == string.gsub(effect.text_sha256, '^sha256:', '') then text = newest end
  end
  if text ~= '' then call('SET', B .. 'effect:' .. effect.id .. ':text', text) end
  store(effect)
  call('ZADD', B .. 'effects', int(NOW), effect.id)
  call('ZADD', B .. 'effects:ids', 0, effect.id)
  call('ZADD', B .. 'target:' .. effect.target, int(effect.turn), effect.id)
  effect_opened(effect.heinzel, effect.turn)
  if ENDED[effect.state] then return finish(effect, effect.state, {}) end
  due('effect:' .. effect.id, may_start(effect) and NOW or effect.expires_ms)
  for _, other in ipairs(rivals(effect)) do
    if same_offer(other, effect) then
      if other.turn > effect.turn and offered(other) then
        return finish(effect, 'refused', { decision = 'superseded', reason = 'superseded by ' .. other.id })
      end
      local older = other.turn < effect.turn or (other.turn == effect.turn and question(other) == question(effect))
      if older and undecided(other) then
        finish(other, 'refused', { decision = 'superseded', reason = 'superseded by ' .. effect.id })
      end
    end
  end
end

local function reply(moved, effect, detail)
  return { moved, effect and cjson.encode(effect) or '', detail or '' }
end

local JOB_MARGIN_MS = 600000 -- what a job's money stays put aside beyond its deadline, until its end is booked

local function job_of(id)
  local raw = call('GET', B .. 'job:' .. id)
  return raw and record_of(raw) or nil
end

-- Puts the money of a new job aside, and no more than the day still has; a turn without a cap of its own gets a share of that.
local function job_money(job, ends, caps)
  local left = day_left(job.heinzel, caps)
  if left then job.max_micros = math.min(given(job.max_micros) and job.max_micros or math.floor(left * job.share), left) end
  if given(job.max_micros) and job.max_micros > 0 then
    reserve(job.heinzel, { id = int(job.turn) .. '/job/' .. job.id, amount = job.max_micros, ttl_ms = ends })
  end
end

-- A new job; its deadline came as a duration.
local function queue_job(job, caps)
  if call('EXISTS', B .. 'job:' .. job.id) == 1 then return end
  job_money(job, job.deadline_ms + JOB_MARGIN_MS, caps)
  job.created_ms, job.deadline_ms = NOW, NOW + job.deadline_ms
  call('SET', B .. 'job:' .. job.id, cjson.encode(job))
  due('job:' .. job.id, NOW)
end

-- Writes a job's end and fills the turn's wait item; `names` are the body entries whose contents come next.
local function end_job(job, status, cost, names)
  job.state, job.status, job.ended_ms, job.cost_micros = 'ended', status, NOW, given(cost) and cost or null
  call('SET', B .. 'job:' .. job.id, cjson.encode(job), 'PX', int(O.body_ttl_ms))
  call('DEL', B .. 'job:' .. job.id .. ':lease')
  undue('job:' .. job.id)
  local number = int(job.turn)
  for _, name in ipairs(names) do call('HSET', of(job.heinzel) .. ':body:' .. number, name, blob()) end
  if #names > 0 then keep_expiry(job.heinzel, number) end
  local data = { job = job.id, status = status, cost_micros = job.cost_micros }
  if given(job.started_ms) then data.started_ms, data.ended_ms = job.started_ms, NOW end
  -- A cost that nobody knows counts at the cap; a job that never ran cost nothing.
  local unknown = given(job.started_ms) and not given(cost) and status ~= 'refused'
  if unknown and given(job.max_micros) then data.possible_micros = job.max_micros end
  if given(job.max_micros) then data.reserved_micros = job.max_micros end
  local mail = { id = 'job/' .. job.id, kind = 'job_ended', turn = job.turn, fills = job.wait, value = status, data = data }
  deliver(job.heinzel, cjson.encode(mail), job.turn, job.wait, status)
end
