-- What a claim needs only sometimes: suspects, expired and large messages, those that were delivered before
-- or have something of their own, and who waits.

local CLAIM_BYTES, BATCH, SMALLEST = 4194304, 1000, FIXED
local ROOMY, LATE, NO_SEAT = { 0, 25, 50 }, 2000, string.rep('\0', 20)

-- A lane of what is ready, read in portions and in order.
local function lane(key, portion)
  local found, at, from = {}, 1, 0
  return function()
    if at > #found then
      found, at = call('ZRANGE', key, from, from + portion - 1, 'WITHSCORES'), 1
      from = from + portion
    end
    return found[at], tonumber(found[at + 1]), function()
      at = at + 2
    end
  end
end

-- Take the next ready messages one by one: n at most, one suspect if wanted, 4 MB but at least one;
-- those that turn out to be expired are put aside. Returns ids, orders and bodies.
local function draw_carefully(n, suspects)
  local plain, suspect = lane(READY, min(n, 100)), lane(SUSPECTS, 10)
  local ids, orders, values, gone, expired, size = {}, {}, {}, {}, {}, 0
  for _ = 1, n + BATCH do
    if #ids == n then
      break
    end
    local id, order, step = plain()
    if suspects then
      local other, place_of, step_other = suspect()
      if other and (not id or place_of < order or (place_of == order and other < id)) then
        id, order, step = other, place_of, step_other
      else
        other = nil
      end
    end
    if not id then
      break
    end
    local expiry = call('ZSCORE', EXPIRES, id)
    if expiry and tonumber(expiry) <= now then
      expired[#expired + 1] = id
    else
      size = size + call('HSTRLEN', BODY, id) - SMALLEST
      if #ids > 0 and size > CLAIM_BYTES then
        break
      end
      ids[#ids + 1], orders[#orders + 1] = id, order
      values[#values + 1] = call('HGET', BODY, id)
      if suspects and call('ZSCORE', SUSPECTS, id) then
        suspects = false
      end
    end
    gone[#gone + 1] = id
    step()
  end
  if #gone > 0 then
    many('ZREM', READY, gone)
    many('ZREM', SUSPECTS, gone)
    many('ZREM', EXPIRES, gone)
  end
  for _, id in ipairs(expired) do
    expire_one(id)
  end
  return ids, orders, values
end

-- Lease one message that was delivered before or has something of its own; its delivery and deadline.
local function lease_one(r, started, request)
  r.token, r.consumer, r.claimed_at = request.token, request.consumer, now
  r.deliveries, r.lease = r.deliveries + 1, request.lease or 0
  r.flags = with(without(without(r.flags, STARTED), TIMED), HELD)
  r.flags = request.lease and with(r.flags, BEATS) or without(r.flags, BEATS)
  if has(r.about.flags, HAS_REMEMBER) or has(r.about.flags, HAS_KEY) then
    r.flags = with(r.flags, CAREFUL)
  end
  local timeout = r.about.ack_timeout or policy.ack_timeout
  if started then
    r.flags, r.started_at = with(r.flags, STARTED), now
    if timeout then
      r.flags, r.ack_deadline = with(r.flags, TIMED), now + timeout
    end
  end
  return write_record(r), deadline_of(request.lease, started and timeout and r.ack_deadline)
end

-- Those who wait have three seats: the first wakes on time, two stand by, all others a second later. A seat
-- is kept with the time at which its holder wakes; whoever should have asked again by now has lost it, and
-- whoever wakes too late for what comes next leaves it to one who knows better. Returns the extra wait.
local function seat(who, wake, busy)
  local kept, mine = {}, nil
  for number = 1, 3 do
    local sitting = string.sub(seats, 20 * number - 19, 20 * number)
    if #sitting == 20 and string.sub(sitting, 1, 12) ~= who then
      local wakes = struct.unpack('>I8', sitting, 13)
      kept[number] = wakes > now - LATE and (busy or wakes <= wake + ROOMY[number]) and sitting or nil
    end
    if not kept[number] and not mine and not busy then
      mine = number
      kept[number] = who .. struct.pack('>I8', wake + ROOMY[number])
    end
  end
  local written = ''
  for number = 1, 3 do
    written = written .. (kept[number] or NO_SEAT)
  end
  if written ~= seats and not (busy and seats == '') then
    set('seats', written)
  end
  return mine and ROOMY[mine] or 1000
end

