-- uses: turns ledger
-- Stores where a job's processes are, before they start.
--
-- A: id, token, place. Answers 1, or 0 where the lease was lost.
-- job:<id> string: no TTL while open
local job = job_of(A.id)
if not job or call('GET', B .. 'job:' .. A.id .. ':lease') ~= A.token then return 0 end
job.place = next(A.place) and A.place or nil
call('SET', B .. 'job:' .. A.id, cjson.encode(job))
return 1
