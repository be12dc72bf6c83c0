-- read: a topic's entries behind a cursor.
--
-- KEYS the stream, and a hash with the first and the last number
-- ARGV [1] the number behind which to read, '' for the oldest kept, 'now' for what comes from now on; [2] limit
-- Returns the number behind which it read, how many were missed, and the entries as XRANGE gives them;
--         false for a topic to which nothing was ever published

local numbers = redis.call('HMGET', KEYS[2], 'first', 'last')
if not numbers[1] then
  return false
end
return read_stream(KEYS[1], tonumber(numbers[1]), tonumber(numbers[2]), ARGV[1], tonumber(ARGV[2]))
