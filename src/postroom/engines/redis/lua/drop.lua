-- drop: remove the queue.
--
-- ARGV [3] '1' to remove it with everything that is in it
-- Returns how many messages went with it; false for an unknown queue

if not open() then
  return false
end
local number = waiting() + call('ZCARD', LEASE) + call('ZCARD', DEAD)
if number > 0 and ARGV[3] ~= '1' then
  return redis.error_reply(
    'POSTROOM conflict there are still messages in it; purge it first, or force the drop')
end
call('UNLINK', unpack(KEYS))
return number
