-- uses: turns
-- Makes a contract set the team's newest generation: all of it at once.
--
-- A: same, source, timezone, skills (JSON text), digest, entries {name, acts, changed schedule, slot}[], removed names[],
-- texts sha256[], op. Contents: each entry as JSON, then each text. Answers {number}.
-- generation hash, contracts hash `<0|1 acts> <entry as JSON>`: permanent, the newest set
-- s:<heinzel>:drafts hash: permanent while the contract is loaded, then body_ttl_ms
-- text:<sha256> string: permanent while the newest generation names it, then body_ttl_ms
local first = repeated()
if first then return first end
local key = B .. 'generation'
if (call('HGET', key, 'digest') or '') ~= A.known then return { -1 } end
local number = tonumber(call('HGET', key, 'number') or '0')
if not A.same then number = number + 1 end
for _, sha in ipairs(A.dropped) do call('PEXPIRE', B .. 'text:' .. sha, int(O.body_ttl_ms)) end
call('DEL', B .. 'contracts')
for _, entry in ipairs(A.entries) do
  call('HSET', B .. 'contracts', entry[1], entry[2] .. ' ' .. blob())
  call('PERSIST', of(entry[1]) .. ':drafts')
  local member = 'slot:' .. entry[1]
  if not given(entry[4]) then
    undue(member)
  elseif entry[3] == 1 or not call('ZSCORE', B .. 'due', member) then
    due(member, entry[4])
  end
end
for _, sha in ipairs(A.texts) do call('SET', B .. 'text:' .. sha, blob()) end
for _, sha in ipairs(A.kept) do call('PERSIST', B .. 'text:' .. sha) end
for _, name in ipairs(A.removed) do
  undue('slot:' .. name)
  call('PEXPIRE', of(name) .. ':drafts', int(O.body_ttl_ms))
  if call('EXISTS', of(name) .. ':inbox', of(name) .. ':open') > 0 then due('session:' .. name, NOW) end
end
call('HSET', key, 'number', number, 'source', A.source, 'timezone', A.timezone, 'skills', A.skills, 'digest', A.digest)
return answer({ number })
