-- Takes a session's lease for sealing: no claim is counted, no slot is taken, `due` stays.
--
-- A: heinzel, token. Answers 1, or 0 where it is held.
-- s:<heinzel>:lease string: lease_ms
return call('SET', of(A.heinzel) .. ':lease', A.token, 'NX', 'PX', int(O.lease_ms)) and 1 or 0
