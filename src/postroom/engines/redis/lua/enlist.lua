-- enlist: note a name in a list of names, also at the memory limit: a full server must let its queues be served.
--
-- KEYS the list; ARGV [1] the command, [2…] what it takes
-- Returns how many names are new

return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))
