-- Takes a session's lease for sealing: no claim is counted, no slot is taken, `due` stays.
--
-- A: heinzel, token. Answers 1, or 0 where it is held, or damaged: a seal would hide what a person must see.
-- s:<heinzel>:lease string: four times lease_ms, because nobody renews while lines are archived
if quarantined(A.heinzel) then return 0 end
return call('SET', of(A.heinzel) .. ':lease', A.token, 'NX', 'PX', int(O.lease_ms * 4)) and 1 or 0
