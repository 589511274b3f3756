-- Takes what is due and may run: moves each entry on, admits sessions against the team's slots.
--
-- Slots of schedules are no work for a worker: the sweep fills them, and here they must not crowd out what can run.
--
-- A: limit. Answers a flat list: member, due ms, solo (0|1), ...
-- s:<heinzel> hash (solo_until): permanent, taken away by the next claim
-- due zset, backoff hash (member -> delay): permanent, entries go with progress; slots zset (heinzel -> end): entries end by score
local rung = {}
local function add(member, score, solo)
  table.insert(rung, member)
  table.insert(rung, score)
  table.insert(rung, solo)
end

-- A session whose lease is held is looked at again when the lease ends; one without a free slot stays due.
local function admit(member, score)
  local heinzel = string.sub(member, 9)
  local left = call('PTTL', of(heinzel) .. ':lease')
  if left > 0 then return due(member, NOW + left) end
  if quarantined(heinzel) then return undue(member) end
  if not take_slot(heinzel, NOW) then return end
  local delay = bump(member)
  call('ZADD', B .. 'slots', int(NOW + delay), heinzel)
  local dead = tonumber(call('HGET', of(heinzel), 'dead') or '0')
  add(member, score, sent_alone(heinzel, dead) and 1 or 0)
end

local entries = call('ZRANGEBYSCORE', B .. 'due', '-inf', int(NOW), 'WITHSCORES', 'LIMIT', 0, 5000)
for index = 1, #entries, 2 do
  if #rung >= A.limit * 3 then break end
  local member, score = entries[index], entries[index + 1]
  local kind = string.match(member, '^%a+')
  if kind == 'session' then
    admit(member, score)
  elseif kind == 'effect' or kind == 'job' then
    bump(member)
    add(member, score, 0)
  end
end
return rung
