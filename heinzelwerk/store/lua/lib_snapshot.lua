-- Reading a session whole: what a claim and an overview answer.

local function snapshot(heinzel, token, dead)
  local key = of(heinzel)
  local head = call('HMGET', key, 'seq', 'head', 'last_turn', 'seal')
  local turns, fills = {}, {}
  for _, number in ipairs(open_turns(heinzel)) do
    local raw = call('HGET', key .. ':turns', number)
    if raw then
      local _, flat = fills_of(heinzel, number)
      table.insert(turns, raw)
      table.insert(fills, flat)
    end
  end
  return {
    'ok', token, int(NOW), head[1] or '0', head[2] or '', dead, head[3] or '0', turns, fills,
    call('LRANGE', key .. ':inbox', 0, -1), call('LRANGE', key .. ':mail', 0, -1),
    call('HGET', B .. 'contracts', heinzel) or '', call('HGET', B .. 'generation', 'number') or '0',
    call('SISMEMBER', B .. 'paused', '') + call('SISMEMBER', B .. 'paused', heinzel),
    call('HGETALL', key .. ':memo'), call('LINDEX', key .. ':spine', -1) or head[4] or '',
  }
end
