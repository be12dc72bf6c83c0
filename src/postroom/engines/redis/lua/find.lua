-- find: a page of one state, in that state's order.
--
-- ARGV [3] the state's letter (r ready, d scheduled, p processing, x dead, o done), [4] and [5] the key and
--      the id behind which to begin ('' and '' for the start), [6] limit, [7] group or '', [8] task or ''
-- Returns the cursor's key and id ('' and '' on the last page), and what `show` says of each;
--         false for an unknown queue

if not open() then
  return false
end

local STATE, LIMIT, GROUP, TASK = ARGV[3], tonumber(ARGV[6]), ARGV[7], ARGV[8]
local PAGE_BYTES, MOST_LOOKED_AT = 4194304, 1000

-- The rank of the first member behind (score, id). Members of one score are in order of their ids.
local function rank_behind(key, score, id)
  local low = call('ZCOUNT', key, '-inf', string.format('(%.0f', score))
  local high = low + call('ZCOUNT', key, score, score)
  while low < high do
    local middle = floor((low + high) / 2)
    if call('ZRANGE', key, middle, middle)[1] <= id then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- The next pairs of score and id of one sorted set.
local function page_of(key, score, id, limit)
  local from = score and rank_behind(key, score, id) or 0
  local found, rows = call('ZRANGE', key, from, from + limit - 1, 'WITHSCORES'), {}
  for at = 1, #found, 2 do
    rows[#rows + 1] = { tonumber(found[at + 1]), found[at], key }
  end
  return rows
end

local function earlier(one, other)
  if one[1] ~= other[1] then
    return one[1] < other[1]
  end
  return one[2] < other[2]
end

local function merge(one, other)
  for _, row in ipairs(other) do
    one[#one + 1] = row
  end
  table.sort(one, earlier)
  return one
end

-- Scheduled messages are kept by (due, level, id) and paged by (due, id): the levels of one
-- millisecond are merged, a few of each at a time.
local function page_moment(moment, id, limit)
  local rows, score = {}, moment * 256
  while score < moment * 256 + 256 do
    local first = tonumber(call('ZRANGE', DUE, score, moment * 256 + 255, 'BYSCORE', 'LIMIT', 0, 1,
      'WITHSCORES')[2])
    if not first then
      break
    end
    local from = id and rank_behind(DUE, first, id) or call('ZCOUNT', DUE, '-inf', string.format('(%.0f', first))
    local til = min(call('ZCOUNT', DUE, '-inf', first), from + limit)
    for _, found in ipairs(til > from and call('ZRANGE', DUE, from, til - 1) or {}) do
      rows[#rows + 1] = { moment, found, DUE }
    end
    score = first + 1
  end
  table.sort(rows, earlier)
  return rows
end

local function page_due(moment, id, limit)
  local rows = {}
  moment = moment or first_due()
  while moment and #rows < limit do
    for _, row in ipairs(page_moment(moment, id, limit - #rows)) do
      rows[#rows + 1] = row
    end
    local following = call('ZRANGE', DUE, (moment + 1) * 256, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
    moment, id = following[2] and floor(tonumber(following[2]) / 256), nil
  end
  return rows
end

-- The dead letters of a group are together in GROUPS, by death: see steps.lua.
local function page_group(score, id, limit)
  local from = score and '(' .. group_entry(GROUP, score, id) or '[' .. GROUP .. '\0'
  local rows = {}
  for _, entry in ipairs(call('ZRANGE', GROUPS, from, '(' .. GROUP .. '\1', 'BYLEX', 'LIMIT', 0, limit)) do
    rows[#rows + 1] = { struct.unpack('>I8', entry, #entry - 23), string.sub(entry, -16), DEAD }
  end
  return rows
end

local function page(score, id, limit)
  if GROUP ~= '' then
    return page_group(score, id, limit)
  end
  if STATE == 'r' then
    return merge(page_of(READY, score, id, limit), page_of(SUSPECTS, score, id, limit))
  elseif STATE == 'd' then
    return page_due(score, id, limit)
  end
  return page_of(STATE == 'p' and LEASE or STATE == 'x' and DEAD or DONE, score, id, limit)
end

-- Whether a row is wanted: finished messages only while they are kept, dead ones of a task.
local function fits(id)
  if STATE == 'o' then
    local til = call('ZSCORE', KEPT, id)
    return til and tonumber(til) > now
  elseif TASK ~= '' then
    return read_record(call('HGET', DELIVERY, id)).about.task == TASK
  end
  return true
end

local LETTERS = { [READY] = 'r', [SUSPECTS] = 's', [DUE] = 'd', [LEASE] = 'p', [DEAD] = 'x', [DONE] = 'o' }

local function finished(row, answer)
  return { row and string.format('%.0f', row[1]) or '', row and row[2] or '', answer }
end

local narrow = STATE == 'o' or TASK ~= ''
local rows = page(tonumber(ARGV[4]), ARGV[5], narrow and MOST_LOOKED_AT or LIMIT + 1)
local answer, size, shown, last = {}, 0, 0, nil
for _, row in ipairs(rows) do
  if not narrow or fits(row[2]) then
    size = size + call('HSTRLEN', BODY, row[2])
    if shown == LIMIT or (shown > 0 and size > PAGE_BYTES) then
      return finished(last, answer)
    end
    show(answer, row[2], LETTERS[row[3]], STATE == 'd' and call('ZSCORE', DUE, row[2]) or row[1])
    shown = shown + 1
  end
  last = row
end
return finished(narrow and #rows == MOST_LOOKED_AT and last or nil, answer)
