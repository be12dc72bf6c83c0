-- A bounded stream whose entries are numbered from `first` to `last`, each reader with its own cursor.

local STREAM_BYTES = 4194304

local function id_of(number)
  return string.format('%.0f', number)
end

-- Up to `limit` entries behind a number, 4 MB but at least one.
local function entries_behind(key, number, limit)
  local entries, size, portion = {}, 0, 16
  while #entries < limit and size < STREAM_BYTES do
    local found = redis.call('XRANGE', key, '(' .. id_of(number), '+', 'COUNT', math.min(portion, limit - #entries))
    for _, entry in ipairs(found) do
      for _, field in ipairs(entry[2]) do
        size = size + #field
      end
      entries[#entries + 1] = entry
    end
    if #found < portion then
      break
    end
    number = tonumber(string.match(found[#found][1], '^%d+'))
    portion = size < 65536 and 1000 or 16
  end
  return entries
end

-- What is behind a cursor: '' is the oldest kept, 'now' the newest. A cursor from before `first` belongs
-- to a stream that was dropped and made again, and missed nothing of this one.
local function read_stream(key, first, last, cursor, limit)
  local before = last - redis.call('XLEN', key)
  if cursor == 'now' then
    return { last, 0, {} }
  end
  local seen = cursor == '' and before or math.max(tonumber(cursor), first - 1)
  local behind = math.max(seen, before)
  return { behind, math.max(0, before - seen), entries_behind(key, behind, limit) }
end
