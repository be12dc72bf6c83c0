-- record_take: ARGV [2] the key of a bucket, [3] how many to take, [4] what a ms earns, [5] what one costs,
--              [6] how many it holds. Kept are what is left and when; see Bucket in records.py
-- Returns 0, or in how many ms they will be there, and nothing taken

local GLITCH = 60000
local key = ARGV[2]
local n, count, per, burst = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local full, level, at = burst * per, burst * per, now
prune()
local found = live(key)
if found then
  local kept, since = struct.unpack('>I8I8', found, 17)
  -- Noted by a clock that was far ahead it would earn nothing until then: it is full instead.
  if since <= now + GLITCH then
    level, at = math.min(full, kept + math.max(0, now - since) * count), math.max(now, since)
  end
end
if level < n * per then
  return math.ceil((n * per - level) / count)
end
level = level - n * per
write(key, struct.pack('>I8I8', level, at), now + math.ceil((full - level) / count))
return 0
