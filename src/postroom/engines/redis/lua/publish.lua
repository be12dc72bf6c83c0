-- publish: append to a topic, and let go of what is too much or too old.
--
-- KEYS the stream, a hash with the first and the last number, and a stream of one entry to wait for
-- ARGV [1] the time or '', [2] how many are kept, [3] how long, [4…] entries
-- Returns the last number

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local last = tonumber(redis.call('HGET', KEYS[2], 'last'))
if not last then
  last = now > 1735689600000 and (now - 1735689600000) * 32 or 0
  redis.call('HSET', KEYS[2], 'first', last + 1)
end
for at = 4, #ARGV do
  last = last + 1
  redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[2], string.format('%.0f-0', last), 'at', now, 'data', ARGV[at])
end
redis.call('HSET', KEYS[2], 'last', last)
redis.call('XADD', KEYS[3], 'MAXLEN', 1, string.format('%.0f-0', last), '', '')

-- When the first entry was published that has this number or a higher one.
local function published(number)
  local id = string.format('%.0f-0', number)
  return tonumber(redis.call('XRANGE', KEYS[1], id, '+', 'COUNT', 1)[1][2][2])
end

-- What was published until then is too old. Entries have numbers without a gap, so that the first of the
-- others is found by halving: however many there are, it takes a few looks and one command.
local til = now - tonumber(ARGV[3])
local oldest = last - redis.call('XLEN', KEYS[1]) + 1
if published(oldest) <= til then
  local low, high = oldest + 1, last
  while low < high do
    local middle = math.floor((low + high) / 2)
    if published(middle) <= til then
      low = middle + 1
    else
      high = middle
    end
  end
  redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f-0', low))
end
return last
