-- log: the queue's history behind a cursor.
--
-- ARGV [3] the number behind which to read, '' for the oldest kept, 'now' for what comes from now on; [4] limit
-- Returns the number behind which it read, how many were missed, and the entries as XRANGE gives them;
--         false for an unknown queue

if not open() then
  return false
end
local numbers = call('HMGET', META, 'log_first', 'log')
local first, last = tonumber(numbers[1]), tonumber(numbers[2])
return read_stream(LOG, first, last, ARGV[3], tonumber(ARGV[4]))
