-- backlog: what waits, ready by priority, and scheduled that was tried before.
--
-- ARGV [3] how many messages are looked at, where no index tells what is asked
-- Returns { priority, count … } and whether that is all, how many retry and whether that is all;
--         false for an unknown queue

if not open() then
  return false
end

local MOST, MOST_BYTES = tonumber(ARGV[3]), 1048576
-- Where a delivery says which attempt it is: see format.lua.
local ATTEMPT = struct.size(HOLD) + struct.size(PLACE) + 1

local levels = {}

local function add(priority, number)
  levels[priority] = (levels[priority] or 0) + number
end

-- A level is a band of the order: one look finds the next that is not empty, another counts it.
local function count_levels(key)
  local from = '-inf'
  while true do
    local found = call('ZRANGE', key, from, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
    if #found == 0 then
      return
    end
    local band = floor(tonumber(found[2]) / policy.level)
    local behind = string.format('%.0f', (band + 1) * policy.level)
    add(255 - band, call('ZCOUNT', key, found[2], '(' .. behind))
    from = behind
  end
end

-- The next ones of both sets, with aging.
local function next_ones()
  local rows = {}
  for _, key in ipairs({ READY, SUSPECTS }) do
    local found = call('ZRANGE', key, 0, MOST - 1, 'WITHSCORES')
    for at = 1, #found, 2 do
      rows[#rows + 1] = { found[at], tonumber(found[at + 1]) }
    end
  end
  table.sort(rows, function(one, other)
    return one[2] < other[2]
  end)
  return rows
end

-- Only the message itself says how urgent it is, and its body comes with it: so many bytes and no more.
local function look_at_levels()
  local rows, bytes = next_ones(), 0
  local seen = min(#rows, MOST)
  for number = 1, seen do
    bytes = bytes + call('HSTRLEN', BODY, rows[number][1])
    if bytes > MOST_BYTES and number > 1 then
      return false
    end
    add(string.byte(call('HGET', BODY, rows[number][1]), 3), 1)
  end
  return seen == claimable()
end

local function retrying()
  local number = 0
  for _, record in ipairs(ask('HMGET', DELIVERY, call('ZRANGE', DUE, 0, MOST - 1))) do
    if record and struct.unpack('>H', record, ATTEMPT) > 0 then
      number = number + 1
    end
  end
  return number
end

local whole = true
if policy.aging then
  whole = look_at_levels()
else
  count_levels(READY)
  count_levels(SUSPECTS)
end
local flat = {}
for priority = 255, 0, -1 do
  if levels[priority] then
    flat[#flat + 1] = priority
    flat[#flat + 1] = levels[priority]
  end
end
return { flat, whole and 1 or 0, retrying(), call('ZCARD', DUE) <= MOST and 1 or 0 }
