-- uses: turns ledger
-- Takes a queued job's lease, once for its life; a job that nobody may run any more is closed here.
--
-- A: id, nonce, worker. Answers {`held`|`nothing_due`} or {`ok`, record, token}.
-- job:<id> string: no TTL while open, then body_ttl_ms; job:<id>:lease string: lease_ms; due zset: entries go with the job
local job, lease = job_of(A.id), B .. 'job:' .. A.id .. ':lease'
if not job or job.state == 'ended' then
  undue('job:' .. A.id)
  return { 'nothing_due' }
end
local token, holder = '1-' .. A.nonce, call('GET', lease)
if holder then return holder == token and { 'ok', cjson.encode(job), token } or { 'held' } end
local wanted = call('ZSCORE', of(job.heinzel) .. ':open', int(job.turn))
if job.state == 'running' or job.deadline_ms <= NOW or not wanted then
  end_job(job, (not wanted and job.state == 'queued') and 'cancelled' or 'interrupted', null, {})
  return { 'nothing_due' }
end
job.state, job.started_ms, job.worker = 'running', NOW, A.worker
call('SET', B .. 'job:' .. A.id, cjson.encode(job))
call('SET', lease, token, 'NX', 'PX', int(O.lease_ms))
due('job:' .. A.id, NOW + O.lease_ms)
calm('job:' .. A.id)
return { 'ok', cjson.encode(job), token }
