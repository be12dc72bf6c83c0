-- tally: how many are due, or died, from each moment until the next. Each count is O(log N).
--
-- ARGV [3] by what: d due time, x death, g death in the group [4], [5…] the moments, in their order
-- Returns a count for each two neighbours; false for an unknown queue

if not open() then
  return false
end

local BY, GROUP, FIRST = ARGV[3], ARGV[4], 5

-- See steps.lua for how the entries of a group are made.
local function moment(at)
  return GROUP .. '\0' .. struct.pack('>I8', at)
end

local counters = {
  d = function(from, til)
    return call('ZCOUNT', DUE, string.format('%.0f', from * 256), string.format('(%.0f', til * 256))
  end,
  x = function(from, til)
    return call('ZCOUNT', DEAD, string.format('%.0f', from), string.format('(%.0f', til))
  end,
  g = function(from, til)
    return call('ZLEXCOUNT', GROUPS, '[' .. moment(from), '(' .. moment(til))
  end,
}

local counts = {}
for at = FIRST, #ARGV - 1 do
  counts[#counts + 1] = counters[BY](tonumber(ARGV[at]), tonumber(ARGV[at + 1]))
end
return counts
