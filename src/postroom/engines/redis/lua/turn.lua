-- turn: settle, report starts and claim the next, in this order and in one step.
--
-- ARGV [3] settlements: for each a verb (1 byte), id (16), token (8) and a number (8). Verbs: a ack,
--          l release (for that span nobody gets it), r retry after that span, R retry at that instant,
--          b bury, c cancel
--      [4] failures: for each that is no ack and no release in turn '1' if a failure of its own follows, else '0'
--      [5] starts: for each id (16) and token (8)
--      [6] n to claim, or '' for no claim; [7] how many of them are started; [8] lease or '';
--      [9] '1' if a suspect may come; [10] consumer; [11] token; [12] who waits, or ''
--      [13…] the failures: note, signature, group, summary
-- Returns rings, an outcome letter per settlement, one per start (o ok, g gone, l lost), and for a claim:
--         now, next_wake, what blocks it or '', lease, ack_timeout (0: none) and max_attempts of the
--         policy, { id, message, delivery or '' … }, { id, checkpoint … }, how much later than the first
--         this waiter need wake; false for an unknown queue

if not open() then
  return false
end
reached()
end_pause()

local CLAIM_BYTES, BATCH, SWEEP = 4194304, 1000, 100
local ACK, RELEASE, YES = 97, 108, 49 -- the letters a, l and 1

-- ---- settling ------------------------------------------------------------------------------------

local next_failure = 13

-- The failure that comes with a settlement, or the one that says that nobody said why.
local function failure_of(number)
  if string.byte(ARGV[4], number) ~= YES then
    return UNNAMED
  end
  local at = next_failure
  next_failure = at + 4
  return { ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3] }
end

-- Almost every message is removed without a look at it: these are the ids to remove.
local done = {}

local function remove_done()
  if #done > 0 then
    many('ZREM', LEASE, done)
    many('HDEL', BODY, done)
    many('HDEL', DELIVERY, done)
    count('acked', #done)
    free_hand(#done)
    done = {}
  end
end

local function settle(blob)
  local ids, outcomes, seen, failures = {}, {}, {}, 0
  for at = 1, #blob, 33 do
    ids[#ids + 1] = string.sub(blob, at + 1, at + 16)
  end
  local records = ask('HMGET', DELIVERY, ids)
  local simple = policy.keep_done == 0 and policy.dedupe_window == 0
  for number, id in ipairs(ids) do
    local at = 33 * number - 32
    local verb, record, failure = string.byte(blob, at), records[number], nil
    if seen[id] then
      remove_done()
      record = call('HGET', DELIVERY, id)
    end
    seen[id] = true
    if verb ~= ACK and verb ~= RELEASE then
      failures = failures + 1
      failure = failure_of(failures)
    end
    local flags = record and string.byte(record, 10) or 0
    if flags % 2 == 0 or string.sub(record, 1, 8) ~= string.sub(blob, at + 17, at + 24) then
      remove_done()
      outcomes[number] = rare().missing(id)
    elseif verb == ACK and simple and flags < CAREFUL then
      done[#done + 1] = id
      outcomes[number] = 'o'
    else
      remove_done()
      rare().settle_one(id, rare().read_record(record), verb, struct.unpack('>I8', blob, at + 25), failure)
      outcomes[number] = 'o'
    end
  end
  remove_done()
  return table.concat(outcomes)
end

-- ---- claiming ------------------------------------------------------------------------------------

-- How many may be claimed now, and what stands in the way when that is none.
local function room(n)
  if paused then
    return 0, 'pause'
  end
  if policy.max_in_flight and n > 0 then
    n = min(n, policy.max_in_flight - call('ZCARD', LEASE))
    if n <= 0 then
      return 0, 'max_in_flight'
    end
  end
  if policy.rate_count and n > 0 then
    n = min(n, allowance())
    if n <= 0 then
      return 0, 'rate'
    end
  end
  return n, ''
end

-- Take the next ready messages. Mostly no suspect is among them, none is expired and they are small.
local function draw(n, suspects)
  local expiry = first_score(EXPIRES)
  suspects = suspects and call('ZCARD', SUSPECTS) > 0
  if suspects or (expiry and expiry <= now) or n * big > CLAIM_BYTES then
    return rare().draw_carefully(n, suspects)
  end
  local popped = call('ZPOPMIN', READY, n)
  local ids, orders = {}, {}
  for at = 1, #popped, 2 do
    ids[#ids + 1], orders[#orders + 1] = popped[at], tonumber(popped[at + 1])
  end
  if expiry then
    many('ZREM', EXPIRES, ids)
  end
  return ids, orders, ask('HMGET', BODY, ids)
end

-- The parts of a first delivery that are alike for all messages of a claim: who holds it, and its deadline.
local function plain_hold(started, request)
  local flags = HELD + (request.lease and BEATS or 0) + (started and STARTED or 0)
  local ack_deadline = started and policy.ack_timeout and now + policy.ack_timeout or nil
  flags = flags + (ack_deadline and TIMED or 0)
  local hold = struct.pack(HOLD, request.token, flags, now, started and now or 0, ack_deadline or 0,
    request.lease or 0)
  return { hold, deadline_of(request.lease, ack_deadline) }
end

local points = {}

local function take(n, request)
  local ids, orders, values = draw(n, request.suspects)
  local records = ask('HMGET', DELIVERY, ids)
  local answer, leases, deliveries = {}, {}, {}
  local holds, rest = {}, struct.pack(REST, 0, 1, 0, 0, #request.consumer, request.consumer, 0)
  for number, id in ipairs(ids) do
    local value, record, delivery, deadline = values[number], records[number], nil, nil
    local started, shown = number <= request.start, ''
    if not record and string.byte(value, 2) % 32 == 0 then
      -- Almost every message: delivered for the first time, with nothing of its own.
      local hold = holds[started]
      if not hold then
        hold = plain_hold(started, request)
        holds[started] = hold
      end
      local flags = string.byte(value, 2)
      local head = flags < 32 and string.sub(value, 1, FIXED) or head_of(value)
      local put_at = struct.unpack('>I8', value, 6)
      delivery = hold[1] .. struct.pack(PLACE, orders[number], put_at) .. rest .. head
      if flags >= HAS_KEY then
        delivery = string.sub(delivery, 1, 9)
          .. string.char(string.byte(delivery, 10) + CAREFUL) .. string.sub(delivery, 11)
      end
      deadline = hold[2]
    else
      local r = record and rare().read_record(record) or rare().new_record(value)
      r.order = orders[number]
      delivery, deadline = rare().lease_one(r, started or has(r.flags, SUSPECT), request)
      shown = delivery
      if has(r.flags, POINT) then
        points[#points + 1] = id
        points[#points + 1] = call('HGET', NOTES, id .. 'c')
      end
    end
    leases[#leases + 1] = deadline
    leases[#leases + 1] = id
    deliveries[#deliveries + 1] = id
    deliveries[#deliveries + 1] = delivery
    answer[#answer + 1] = id
    answer[#answer + 1] = value
    answer[#answer + 1] = shown
  end
  many('ZADD', LEASE, leases)
  many('HSET', DELIVERY, deliveries)
  return answer, #ids
end

-- Whom to wake after a claim: whoever made it has used its ring. While work is left two more are woken,
-- who wake others in turn. A suspect that has just come back and that this consumer may not have is
-- told to one other; a blocked queue wakes nobody, and nobody needs the rings of work that is gone.
local function rings_after(blocked, left)
  if blocked == 'suspect' then
    return min(1, rings)
  end
  if blocked ~= '' or left == 0 then
    call('LREM', WAKE, 0, 'w')
    return 0
  end
  return min(2, left)
end

local function wake_after(blocked, ready)
  if blocked == '' and ready > 0 then
    return 0
  elseif blocked == 'rate' then
    return next_wake(now + refill_in())
  elseif blocked == '' or blocked == 'suspect' then
    return next_wake(first_due())
  end
  return next_wake(blocked == 'pause' and pause_end or nil)
end

local function is_ripe(score)
  return score and score <= now
end

local function claim(n, request)
  local overdue, due, expired = first_score(LEASE), first_due(), first_score(EXPIRES)
  if is_ripe(overdue) then
    rare().reclaim(SWEEP, 'claim')
  end
  if is_ripe(due) then
    rare().promote(BATCH)
  end
  if is_ripe(expired) then
    rare().expire(SWEEP)
  end
  local places, blocked = room(n)
  local taken, number = {}, 0
  if places > 0 then
    request.start = request.start or places
    taken, number = take(places, request)
  end
  local ready, suspects = call('ZCARD', READY), call('ZCARD', SUSPECTS)
  if places > 0 and number == 0 and suspects > 0 and ready == 0 then
    blocked = 'suspect'
  end
  if number > 0 then
    count('claimed', number)
    spend(number)
  end
  rings = rings_after(blocked, ready + suspects)
  local wake, later = wake_after(blocked, ready), 1000
  if request.waiter ~= '' then
    later = rare().seat(request.waiter, now + wake, number > 0)
    if number == 0 then
      wake = min(wake + later, floor(policy.lease / 3))
    end
  end
  return wake, blocked, taken, later
end

local settled = settle(ARGV[3])
local started = ARGV[5] ~= '' and rare().start(ARGV[5]) or ''
if ARGV[6] == '' then
  return { finish_step(), settled, started }
end
local wake, blocked, taken, later = claim(tonumber(ARGV[6]), {
  start = tonumber(ARGV[7]), lease = tonumber(ARGV[8]), suspects = ARGV[9] == '1', consumer = ARGV[10],
  token = ARGV[11], waiter = ARGV[12],
})
return {
  finish_step(), settled, started, now, wake, blocked, policy.lease, policy.ack_timeout or 0,
  policy.max_attempts, taken, points, later,
}
