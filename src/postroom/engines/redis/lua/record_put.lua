-- record_put: ARGV [2] the key, [3] the value, [4] its time to live or '', [5] the version expected or ''
-- Returns the new version, which was never used before; 0, and nothing changed, if the expected one does not fit

local key, ttl = ARGV[2], tonumber(ARGV[4])
prune()
local _, version = live(key)
if not fits(version, ARGV[5]) then
  return 0
end
-- Never used before, not even by a store that was lost: so it follows the clock.
local last = tonumber(redis.call('HGET', VALUES, '')) or 0
local new = math.max(last + 1, (now - 1735689600000) * 32)
redis.call('HSET', VALUES, '', new, key, struct.pack(RECORD, new, ttl and now + ttl or 0) .. ARGV[3])
redis.call('ZADD', NAMES, 0, key)
if ttl then
  redis.call('ZADD', EXPIRING, now + ttl, key)
else
  redis.call('ZREM', EXPIRING, key)
end
return new
