-- hold: renew (a heartbeat) or extend (TOUCH) deliveries that the caller still holds.
--
-- ARGV [3] receipts: for each id (16) and token (8); [4] 'renew' or 'extend'; [5] lease or '';
--      [6] for extend the span, or '' for the ack_timeout again; [7] '1' if a checkpoint follows, [8] it
-- Returns an outcome letter per receipt (o ok, g gone, l lost); false for an unknown queue

if not open() then
  return false
end
reached()

local lease, span, extends = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[4] == 'extend'

-- The work may take its span from now on.
local function touch(id, r)
  local allowed = span or r.about.ack_timeout or policy.ack_timeout
  r.flags = allowed and with(r.flags, TIMED) or without(r.flags, TIMED)
  r.ack_deadline = allowed and now + allowed or 0
  if extended(r) < MOST_EXTENDED then
    r.flags = r.flags + EXTENDED
  end
  if ARGV[7] == '1' then
    r.flags = with(with(r.flags, POINT), CAREFUL)
    call('HSET', NOTES, id .. 'c', ARGV[8])
  end
  call('HSET', DELIVERY, id, write_record(r))
end

local blob, ids, known, outcomes, deadlines = ARGV[3], {}, {}, {}, {}
for at = 1, #blob, 24 do
  ids[#ids + 1] = string.sub(blob, at, at + 15)
end
local records = ask('HMGET', DELIVERY, ids)
for number, id in ipairs(ids) do
  local r = known[id] or records[number] and read_record(records[number]) -- one that is named twice counts twice
  known[id] = r
  if not r or not has(r.flags, HELD) or r.token ~= string.sub(blob, 24 * number - 7, 24 * number) then
    outcomes[number] = find_place(id) and 'l' or 'g'
  else
    if extends then
      touch(id, r)
    end
    deadlines[#deadlines + 1] = deadline_of(lease, has(r.flags, TIMED) and r.ack_deadline or nil)
    deadlines[#deadlines + 1] = id
    outcomes[number] = 'o'
  end
end
many('ZADD', LEASE, deadlines)
save()
return table.concat(outcomes)
