-- What time demands: reclaim the overdue, promote the due, expire. Each bounded.

-- Back to its place: true. Dead instead, in the same step: false.
local function come_back(id, deadline)
  local r = read_record(call('HGET', DELIVERY, id))
  local started = has(r.flags, STARTED)
  -- By the deadline that passed, not by now: a late sweep must not take a dead consumer for a slow one.
  local too_slow = has(r.flags, TIMED) and r.ack_deadline == deadline
  local failure = too_slow and TOO_SLOW or SILENT
  if started then
    note_attempt(id, r, failure[4])
    r.ran_out = r.ran_out + 1
  else
    r.strays = r.strays + 1
  end
  take_back(id, r)
  if started and r.attempt >= (r.about.max_attempts or policy.max_attempts) then
    bury(id, r, failure)
    return false
  end
  place(id, r, r.order)
  return true
end

-- Take overdue deliveries back: to their place, or among the dead when their attempts are used up.
-- Returns how many in all, and how many of them are dead.
local function reclaim(limit, triggered_by)
  if now < grace then
    return 0, 0
  end
  local overdue = call('ZRANGE', LEASE, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
  if #overdue == 0 then
    return 0, 0
  end
  local returned, all = {}, #overdue / 2
  for at = 1, #overdue, 2 do
    if come_back(overdue[at], tonumber(overdue[at + 1])) then
      returned[#returned + 1] = overdue[at]
    end
  end
  local dead = all - #returned
  count('reclaimed', all)
  tell('requeue', returned, #returned, { 'i.dlq_count', dead, 's.triggered_by', triggered_by })
  return all, dead
end

-- Make ready what is due, earliest first, most urgent first within a millisecond.
local function promote(limit)
  local due = call('ZRANGE', DUE, '-inf', now * 256 + 255, 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
  if #due == 0 then
    return 0
  end
  local ids = {}
  for at = 1, #due, 2 do
    ids[#ids + 1] = due[at]
  end
  local records = ask('HMGET', DELIVERY, ids)
  local plain = {}
  for number, id in ipairs(ids) do
    local score = tonumber(due[2 * number])
    local order = due_order(255 - score % 256, floor(score / 256))
    if records[number] then
      place(id, read_record(records[number]), order)
    else
      plain[#plain + 1] = order
      plain[#plain + 1] = id
    end
  end
  many('ZADD', READY, plain)
  rings = rings + #plain / 2
  call('ZREMRANGEBYRANK', DUE, 0, #ids - 1)
  set('seq', seq)
  return #ids
end

-- Nobody took it in time: a dead letter or nothing, as the policy says, but never silently.
local function expire_one(id)
  local r = record_of(id)
  count('expired', 1)
  note('expire', id)
  if policy.drops_expired then
    vanish(id, r.about)
  else
    bury(id, r, EXPIRED)
  end
end

local function expire(limit)
  local ids = call('ZRANGE', EXPIRES, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
  for _, id in ipairs(ids) do
    call('ZREM', EXPIRES, id)
    call('ZREM', READY, id)
    call('ZREM', SUSPECTS, id)
    call('ZREM', DUE, id)
    expire_one(id)
  end
  return #ids
end

-- Let go of ids and finished messages whose time is over; how many of one kind at most.
local function forget(limit)
  local done = call('ZRANGE', KEPT, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
  for _, id in ipairs(done) do
    call('ZREM', KEPT, id)
    if call('ZREM', DONE, id) == 1 then -- else its id was put again
      let_go(id)
    end
  end
  local known = call('ZRANGE', KNOWN, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
  many('ZREM', KNOWN, known)
  return max(#done, #known)
end
