-- nudge: ring the private bell of a process, which is gone soon after the process.
--
-- KEYS the bell; ARGV [1] the command, [2] how long it is kept (ms), [3…] what is written
-- Returns 1

redis.call(ARGV[1], KEYS[1], unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
