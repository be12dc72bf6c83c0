-- How deliveries end and begin: what a turn needs for all but the plain ack.

-- The letters of the verbs: see turn.lua.
local ACK, BURY, CANCEL, RELEASE, RETRY_IN = 97, 98, 99, 108, 114

-- What to answer to a receipt that holds nothing.
local function missing(id)
  return find_place(id) and 'l' or 'g'
end

local function retry(id, r, failure, due)
  note_attempt(id, r, failure[4])
  take_back(id, r)
  if r.attempt >= (r.about.max_attempts or policy.max_attempts) then
    bury(id, r, failure)
  else
    wait_until(id, r, min(due, LAST_DUE))
    set('seq', seq)
    count('retried', 1)
    note('retry', id)
  end
end

local function release(id, r, delay)
  if not has(r.flags, STARTED) then
    spend(-1)
  end
  take_back(id, r)
  if delay > 0 then
    wait_until(id, r, min(now + delay, LAST_DUE))
    set('seq', seq)
  else
    place(id, r, r.order)
  end
  count('released', 1)
end

local function settle_one(id, r, verb, number, failure)
  if verb == ACK then
    take_back(id, r)
    finish(id, r)
    count('acked', 1)
  elseif verb == RELEASE then
    release(id, r, number)
  elseif verb == CANCEL then
    take_back(id, r)
    vanish(id, r.about)
    count('cancelled', 1)
    note('cancel', id)
  elseif verb == BURY then
    note_attempt(id, r, failure[4])
    take_back(id, r)
    bury(id, r, failure)
  else
    retry(id, r, failure, verb == RETRY_IN and now + number or number)
  end
end

-- The work begins now: from here the ack_timeout counts.
local function start(blob)
  local outcomes = {}
  for at = 1, #blob, 24 do
    local id, token = string.sub(blob, at, at + 15), string.sub(blob, at + 16, at + 23)
    local record = call('HGET', DELIVERY, id)
    local r = record and read_record(record)
    if not r or not has(r.flags, HELD) or r.token ~= token then
      outcomes[#outcomes + 1] = missing(id)
    else
      if not has(r.flags, STARTED) then
        local timeout = r.about.ack_timeout or policy.ack_timeout
        r.flags, r.started_at = with(r.flags, STARTED), now
        if timeout then
          r.flags, r.ack_deadline = with(r.flags, TIMED), now + timeout
        end
        local lease = has(r.flags, BEATS) and r.lease or nil
        call('ZADD', LEASE, deadline_of(lease, timeout and r.ack_deadline), id)
        call('HSET', DELIVERY, id, write_record(r))
      end
      outcomes[#outcomes + 1] = 'o'
    end
  end
  return table.concat(outcomes)
end

