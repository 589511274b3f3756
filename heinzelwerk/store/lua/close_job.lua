-- uses: turns ledger
-- Ends a job under its lease, or without one where none is held.
--
-- A: id, token, status, cost, names (body entries), op. Contents: the entries. Answers {1} or {0}.
-- job:<id> string: body_ttl_ms from here; job:<id>:lease string: gone; s:<heinzel>:body:<turn> hash, mail, fills: see commit.lua
local first = repeated()
if first then return first end
local job = job_of(A.id)
if not job or job.state == 'ended' then return { 0 } end
local holder = call('GET', B .. 'job:' .. A.id .. ':lease')
if given(A.token) and holder ~= A.token or not given(A.token) and holder then return { 0 } end
end_job(job, A.status, A.cost, A.names)
return answer({ 1 })
