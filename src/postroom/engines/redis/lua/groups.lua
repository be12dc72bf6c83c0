-- groups: the groups of the dead letters, by fingerprint.
--
-- ARGV [3] the fingerprint behind which to begin, or '', [4] limit
-- Returns for each { fingerprint, count, when the first died, when the last, the id of the last };
--         false for an unknown queue

if not open() then
  return false
end

-- When a letter died, and its id: the end of its entry. See steps.lua.
local function end_of(entry)
  return struct.unpack('>I8', entry, #entry - 23), string.sub(entry, -16)
end

local answer = {}
local from = ARGV[3] == '' and '-' or '[' .. ARGV[3] .. '\1'
while #answer < tonumber(ARGV[4]) do
  local first = call('ZRANGE', GROUPS, from, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
  if not first then
    break
  end
  local name = string.sub(first, 1, #first - 25)
  local low, high = '[' .. name .. '\0', '(' .. name .. '\1'
  local last = call('ZRANGE', GROUPS, high, low, 'BYLEX', 'REV', 'LIMIT', 0, 1)[1]
  local began = end_of(first)
  local ended, id = end_of(last)
  answer[#answer + 1] = { name, call('ZLEXCOUNT', GROUPS, low, high), began, ended, id }
  from = '[' .. name .. '\1'
end
return answer
