-- record_put: ARGV [2] the key, [3] the value, [4] its time to live or '', [5] the version expected or ''
-- Returns the new version, which was never used before; 0, and nothing changed, if the expected one does not fit

local key, ttl = ARGV[2], tonumber(ARGV[4])
prune()
local _, version = live(key)
if not fits(version, ARGV[5]) then
  return 0
end
return write(key, ARGV[3], ttl and now + ttl or 0)
