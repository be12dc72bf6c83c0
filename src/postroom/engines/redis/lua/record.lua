-- Records of one kind: small versioned values with a time to live.
--
-- KEYS a hash key → version, expiry (0: none), value, whose field '' is the last version; a sorted set of
--      the keys, for their order; a sorted set of the keys that expire, by when
-- ARGV [1] the time or ''

local VALUES, NAMES, EXPIRING = unpack(KEYS)
local RECORD, PRUNE = '>I8I8', 100
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The record as it is kept, and its version; nil if there is none or its time is over.
local function live(key)
  local found = key ~= '' and redis.call('HGET', VALUES, key)
  if found then
    local version, expires = struct.unpack(RECORD, found)
    if expires == 0 or expires > now then
      return found, version
    end
  end
end

local function remove(key)
  redis.call('HDEL', VALUES, key)
  redis.call('ZREM', NAMES, key)
  redis.call('ZREM', EXPIRING, key)
end

-- Let go of some records whose time is over and that nobody asked for.
local function prune()
  for _, key in ipairs(redis.call('ZRANGE', EXPIRING, '-inf', now, 'BYSCORE', 'LIMIT', 0, PRUNE)) do
    remove(key)
  end
end

-- Whether a record is of the expected version ('' any, 0 none).
local function fits(version, expected)
  return expected == '' or (version or 0) == tonumber(expected)
end

-- Keep a value, until `expires` (0: for ever), and return its version.
local function write(key, value, expires)
  -- Never used before, not even by a store that was lost: so it follows the clock.
  local last = tonumber(redis.call('HGET', VALUES, '')) or 0
  local new = math.max(last + 1, (now - 1735689600000) * 32)
  redis.call('HSET', VALUES, '', new, key, struct.pack(RECORD, new, expires) .. value)
  redis.call('ZADD', NAMES, 0, key)
  if expires > 0 then
    redis.call('ZADD', EXPIRING, expires, key)
  else
    redis.call('ZREM', EXPIRING, key)
  end
  return new
end
