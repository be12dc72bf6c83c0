-- How a message is shown: eight values for each.

-- A message and where it stands: id, place, its score there, message, delivery, attempts, checkpoint,
-- failure, replays; false for what is not there. Returns the size of the message too.
local function show(answer, id, place_of, score)
  local value, record = call('HGET', BODY, id), call('HGET', DELIVERY, id)
  local notes = record and call('HMGET', NOTES, id .. 'a', id .. 'c', id .. 'f', id .. 'r') or {}
  for _, shown in ipairs({
    id, place_of, string.format('%.0f', score), value, record or '', notes[1] or '', notes[2] or false,
    notes[3] or '', notes[4] or '',
  }) do
    answer[#answer + 1] = shown
  end
  return #value
end

-- Where a message is that people may look at: a finished one only while `keep_done` lets them.
local function visible(id)
  local place_of, score = find_place(id)
  if not place_of then
    local til = call('ZSCORE', KEPT, id)
    if til and tonumber(til) > now then
      return 'o', tonumber(call('ZSCORE', DONE, id))
    end
  end
  return place_of, score
end
