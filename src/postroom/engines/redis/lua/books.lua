-- The books of one queue: everything that is kept beside its messages.
--
-- KEYS, the same for every script of a queue, all under one hash tag:
local META, READY, SUSPECTS, DUE, LEASE, EXPIRES, BODY, DELIVERY, NOTES, DEAD, DONE, KEPT, KNOWN, UNIQUE,
  WAKE, LOG, TRASH_READY, TRASH_SUSPECTS, TRASH_DUE, GROUPS = unpack(KEYS)
-- ARGV, the same for every script of a queue: [1] the time (ms) of a test's clock, or '' for the server's;
-- [2] how many waiters of the caller's own process could be rung, so that need not be woken from here.

local call, floor, min, max = redis.call, math.floor, math.min, math.max
local GLITCH, KEPT_IDS, LOG_LIMIT = 60000, 50, 10000

local function clock()
  if ARGV[1] ~= '' then
    return tonumber(ARGV[1])
  end
  local time = call('TIME')
  return time[1] * 1000 + floor(time[2] / 1000)
end

local now = clock()
local policy, seq, called, grace, paused, big, seats
-- When a pause ends by itself, and whether that is over but nobody has told it yet.
local pause_end, pause_over
local dirty = {}
local rings, alarms = 0, 0
-- Whether max_in_flight held claims back when this step began.
local was_full = false
local news, counts = {}, {}

-- Load the books; false, and only `now` is known, if there is no such queue.
local function open()
  local found = call('HMGET', META, 'numbers', 'seq', 'called', 'grace', 'paused', 'big', 'seats')
  if not found[1] then
    return false
  end
  policy = cmsgpack.unpack(found[1])
  seq, called, grace = tonumber(found[2]), tonumber(found[3]), tonumber(found[4])
  paused, big, seats = found[5] == '1', tonumber(found[6]), found[7] or ''
  if policy.format > FORMAT_KNOWN then
    error({ err = 'POSTROOM store_too_new this queue was written by a newer release; update this one' })
  end
  if now < called then
    -- The time of a queue does not go back, unless it was far ahead: then that was a glitch.
    if called <= now + GLITCH then
      now = called
    else
      called, grace = now, min(grace, now + policy.lease)
      dirty = { called = called, grace = grace }
    end
  end
  if paused then
    -- Behind the reason: see steps/pausing.py.
    pause_end = tonumber(string.match(call('HGET', META, 'reason') or '', '\31until (%d+)$'))
    pause_over = pause_end and now >= pause_end
    paused = not pause_over
  end
  return true
end

local function ticks(at)
  return at > EPOCH and (at - EPOCH) * TICKS or 0
end

-- A new queue begins: nothing was called before, and nothing is late.
local function begin(text, numbers)
  policy = cmsgpack.unpack(numbers)
  seq, called, grace, paused, big, seats = 0, now, now, false, 0, ''
  dirty = {
    policy = text, numbers = numbers, seq = 0, called = now, grace = now, big = 0,
    bucket = policy.rate_full or 0, bucket_at = now, log = ticks(now), log_first = ticks(now) + 1,
  }
end

-- Keep a changed field of the books; `save` writes them together.
local function set(field, value)
  dirty[field] = value
end

-- A call came through. After a long silence nobody is taken for dead at first. Calls soon after
-- another are not noted, so that asking in vain need not write anything.
local function reached()
  local silence = now - called
  if silence > floor(policy.lease / 2) then
    grace = now + floor(policy.lease / 3)
    set('grace', grace)
  end
  if silence >= floor(policy.lease / FRESH) then
    called = now
    set('called', called)
  end
end

local function save()
  local fields = {}
  for field, value in pairs(dirty) do
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
  if #fields > 0 then
    call('HSET', META, unpack(fields))
    dirty = {}
  end
  for name, count in pairs(counts) do
    call('HINCRBY', META, name, count)
  end
  counts = {}
end

-- Nothing of the call was done, and this is why.
local function refuse(code, text)
  save()
  return redis.error_reply('POSTROOM ' .. code .. ' ' .. text)
end

-- ---- order --------------------------------------------------------------------------------------

local function order_of(priority, number)
  return (255 - priority) * policy.level + number
end

-- The place of a message that becomes ready now: behind all of its level.
local function new_order(priority)
  local first = (now - EPOCH) * TICKS
  seq = first > seq and first or seq + 1
  return order_of(priority, seq)
end

-- The place of a message that becomes ready now but was due at `due`.
local function due_order(priority, due)
  local number = seq >= ticks(now + 1) and seq + 1 or ticks(due)
  seq = max(seq, number)
  return order_of(priority, number)
end

-- ---- commands about many --------------------------------------------------------------------------

-- One command about many items: as few calls as the Lua stack allows.
local function many(command, key, items)
  for first = 1, #items, 2000 do
    call(command, key, unpack(items, first, min(first + 1999, #items)))
  end
end

-- The answers of HMGET or ZMSCORE about many items.
local function ask(command, key, items)
  if #items <= 2000 then
    return #items > 0 and call(command, key, unpack(items)) or {}
  end
  local answers = {}
  for first = 1, #items, 2000 do
    for _, answer in ipairs(call(command, key, unpack(items, first, min(first + 1999, #items)))) do
      answers[#answers + 1] = answer
    end
  end
  return answers
end

-- The smallest score of a sorted set.
local function first_score(key)
  return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
end

local function first_due()
  local score = first_score(DUE)
  return score and floor(score / 256)
end

local function claimable()
  return call('ZCARD', READY) + call('ZCARD', SUSPECTS)
end

local function waiting()
  return claimable() + call('ZCARD', DUE)
end

-- ---- time -----------------------------------------------------------------------------------------

-- The span until the next deadline or the earliest of the others, at most a third of the lease.
local function next_wake(...)
  local at = now + floor(policy.lease / 3)
  local deadline = first_score(LEASE)
  if deadline then
    at = min(at, max(deadline, grace))
  end
  for _, other in pairs({ ... }) do
    at = min(at, other)
  end
  return max(0, at - now)
end

-- When a delivery is overdue. A consumer without a heartbeat has no lease, only its ack_timeout.
local function deadline_of(lease, ack_deadline)
  if not lease then
    return ack_deadline or now + policy.lease
  end
  return ack_deadline and min(now + lease, ack_deadline) or now + lease
end

-- ---- rate: a millisecond earns `count`, a claim costs `per`, the bucket is full at `full` -----------

local bucket, bucket_at

-- The claims that the rate allows at this moment.
local function allowance()
  if not bucket then
    local found = call('HMGET', META, 'bucket', 'bucket_at')
    bucket, bucket_at = tonumber(found[1]), tonumber(found[2])
  end
  if bucket_at > now + GLITCH then
    bucket, bucket_at = policy.rate_full, now -- else nothing would be earned until then
  end
  bucket = min(policy.rate_full, bucket + max(0, now - bucket_at) * policy.rate_count)
  bucket_at = max(bucket_at, now)
  return floor(bucket / policy.rate_per)
end

-- Take claims from the bucket; negative: give them back.
local function spend(claims)
  if policy.rate_count and claims ~= 0 then
    allowance()
    bucket = min(policy.rate_full, bucket - claims * policy.rate_per)
    set('bucket', bucket)
    set('bucket_at', bucket_at)
  end
end

local function refill_in()
  if allowance() > 0 then
    return 0
  end
  return -floor((bucket - policy.rate_per) / policy.rate_count)
end

-- ---- telling --------------------------------------------------------------------------------------

-- Count messages, and have some told with the others of this step.
local function count(name, number)
  counts[name] = (counts[name] or 0) + number
end

local function note(event, id)
  local ids = news[event]
  if not ids then
    ids = {}
    news[event] = ids
    news[#news + 1] = event
  end
  ids[#ids + 1] = id
end

-- Write one log entry, under the next number; `info` are further pairs of fields.
local function tell(event, ids, number, info)
  local id = string.format('%.0f-0', call('HINCRBY', META, 'log', 1))
  local kept = #ids > KEPT_IDS and { unpack(ids, 1, KEPT_IDS) } or ids
  call('XADD', LOG, 'MAXLEN', LOG_LIMIT, id,
    'event', event, 'at', now, 'count', number, 'ids', table.concat(kept), unpack(info or {}))
end

-- Write what happened in this step, one log entry for each kind of event.
local function announce()
  for _, event in ipairs(news) do
    tell(event, news[event], #news[event])
  end
end

-- ---- rings ----------------------------------------------------------------------------------------

-- Whoever waits in other processes finds a token in the list: at most two for work, three for an
-- earlier due time. Returns how many waiters this step gives reason to wake, the caller's own first.
local function ring()
  if was_full and call('ZCARD', LEASE) < policy.max_in_flight and first_due() then
    alarms = 3 -- see `unblock`
  end
  local wanted = max(alarms, min(2, rings))
  local missing = wanted - tonumber(ARGV[2])
  if missing > 0 then
    missing = missing - call('LLEN', WAKE)
    if missing > 0 then
      local token = alarms > 0 and 'd' or 'w'
      call('RPUSH', WAKE, unpack({ token, token, token }, 1, missing))
    end
  end
  return wanted
end

-- Claims are not held back any more. Nobody who asked meanwhile was told what is due next: as with an
-- earlier due time, one should know it and two stand by.
local function unblock()
  rings = claimable()
  if first_due() then
    alarms = 3
  end
end

-- A pause whose time is over is none; somebody may claim again.
local function end_pause()
  if pause_over then
    pause_end, pause_over = nil, false
    set('paused', '0')
    set('reason', '')
    tell('resume', {}, 0, { 's.triggered_by', 'time' })
    unblock()
  end
end

-- One less is processing; with a limit on that, somebody may claim again.
local function free_hand(number)
  if not policy.max_in_flight then
    return
  end
  was_full = was_full or call('ZCARD', LEASE) + number >= policy.max_in_flight
  if rings < 2 and claimable() > 0 then
    rings = rings + number
  end
end

-- The end of every step that changes something.
local function finish_step()
  save() -- first: it also begins the log of a new queue
  announce()
  return ring()
end
