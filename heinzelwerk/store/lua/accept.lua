-- uses: turns wakes
-- Takes one wake in: its key once, its session's inbox, its session due now.
--
-- A: wake {id, heinzel, steers}, nonce. Content: the wake as JSON. Answers {disposition, reason, turn}.
-- seen:<heinzel>:<wake id> hash, written by accept, ended by commit: no TTL while the wake is open, then 30 days
-- s:<heinzel>:inbox list `<accepted ms> <wake>`, s:<heinzel>:mail list, sessions set, due zset, counters hash: permanent
return accept(A.wake[1], A.wake[2], A.wake[3] == 1, blob(), A.nonce)
