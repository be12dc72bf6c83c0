-- put_one: keep one message that is due now, never expires and has no unique_key.
--
-- What most producers do all day, so it is one straight line: no function is made, and no key is named
-- that is not needed. Whatever is not as it mostly is, is left to `put`, before anything is written.
--
-- KEYS [1] meta, [2] ready, [3] suspects, [4] due, [5] body, [6] known, [7] wake
-- ARGV [1] the time or '', [2] waiters of the caller's own process (see books.lua), [3] id, [4] draft,
--      [5] rest (see put.lua)
-- Returns rings alone, or { rings, depth } where a policy watches the depth: a list takes the server
--         a tenth of the whole call; false when it takes `put`

local call, floor = redis.call, math.floor
local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end
local found = call('HMGET', KEYS[1], 'numbers', 'seq', 'called', 'big', 'put')
if not found[1] then
  return false
end
local policy, called, put = cmsgpack.unpack(found[1]), tonumber(found[3]), tonumber(found[5] or 0)
local silence = now - called
if policy.format > FORMAT_KNOWN or silence < 0 or silence > policy.lease / 2 or put % FORGET_EVERY == 0 then
  return false
end
local id = ARGV[3]
local depth = -1
if policy.capacity or policy.warn_depth then
  depth = call('ZCARD', KEYS[2]) + call('ZCARD', KEYS[3]) + call('ZCARD', KEYS[4]) + 1
end
if (policy.capacity and depth > policy.capacity) or call('ZSCORE', KEYS[6], id) then
  return false
end
local draft, seq = ARGV[4], (now - EPOCH) * TICKS
local flags, priority = string.byte(draft, 1, 2)
local value = struct.pack('>BBBHI8', FORMAT, flags, priority, FIXED + #draft - 3, now)
  .. string.sub(draft, 4) .. ARGV[5]
if call('HSETNX', KEYS[5], id, value) == 0 then
  return false
end
local last = tonumber(found[2])
if seq <= last then
  seq = last + 1
end
call('ZADD', KEYS[2], (255 - priority) * policy.level + seq, id)
call('HSET', KEYS[1], 'seq', seq, 'put', put + 1)
if silence >= floor(policy.lease / FRESH) then
  call('HSET', KEYS[1], 'called', now)
end
if #value > tonumber(found[4]) then
  call('HSET', KEYS[1], 'big', #value)
end
if ARGV[2] == '0' and call('LLEN', KEYS[7]) == 0 then
  call('RPUSH', KEYS[7], 'w')
end
return depth < 0 and 1 or { 1, depth }
