-- put: keep these messages, all of them or none, each at most once.
--
-- ARGV [3] text and [4] numbers of the policy of a new queue ('' when it is thought to exist),
--      [5] n, then for each message: id, draft, rest; then for each that has a unique_key or a failure:
--      its number, unique_key, the failure's note, signature and group ('' and '' and '' for none), and of
--      its past when it was put, how many attempts there were and the last of them (all '' for none)
-- Returns rings, depth (-1 where no policy watches it), and what each put came to: '' (created), its own id or the id of the holder;
--         'unknown' when there is no such queue and no policy to make it by

local BIG_ANSWER, FORGET = 4194304, 1000

local function collect(n)
  local ids, drafts, rests = {}, {}, {}
  for number = 1, n do
    local at = 3 * number + 3
    ids[number], drafts[number], rests[number] = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  end
  local extras = {}
  for at = 6 + 3 * n, #ARGV, 8 do
    local key, failure = ARGV[at + 1], { ARGV[at + 2], ARGV[at + 3], ARGV[at + 4] }
    extras[tonumber(ARGV[at])] = {
      key = key ~= '' and key or nil, failure = failure[1] ~= '' and failure or nil,
      put_at = tonumber(ARGV[at + 5]), attempt = tonumber(ARGV[at + 6]), attempts = ARGV[at + 7],
    }
  end
  return ids, drafts, rests, extras
end

-- Which of these have a body: mostly none, and then this is one cheap question.
local function bodies(ids)
  if big * #ids <= BIG_ANSWER then
    return ask('HMGET', BODY, ids)
  end
  local found = {}
  for number, id in ipairs(ids) do
    found[number] = call('HEXISTS', BODY, id) == 1
  end
  return found
end

-- Which of these exist, or are gone but still remembered or kept for people to look at; and ghosts.
local function sort_known(ids)
  local known, ghosts = {}, {}
  for number, body in pairs(bodies(ids)) do
    local id = ids[number]
    if body and not known[id] then
      local kept = tonumber(call('ZSCORE', KEPT, id) or 0)
      known[id] = rare().find_place(id) ~= nil or kept > now
      ghosts[id] = not known[id] or nil
    end
  end
  if call('EXISTS', KNOWN) == 1 then
    for number, til in pairs(ask('ZMSCORE', KNOWN, ids)) do
      if til and tonumber(til) > now then
        known[ids[number]] = true
      end
    end
  end
  return known, ghosts
end

-- When it is due and when it expires, as its draft says; or why it is refused.
local function times(draft, how)
  local at, due, expires = 4, now, nil
  if how % 4 > 0 then
    local number
    number, at = struct.unpack('>I8', draft, at)
    due = how % 2 == 1 and now + number or max(now, number)
  end
  if how >= 4 then
    local number
    number, at = struct.unpack('>I8', draft, at)
    expires = how % 8 >= 4 and now + number or number
  end
  if due > LAST_DUE then
    return nil, nil, nil, 'delay: the message would be due after 2059'
  elseif expires and expires <= due then
    return nil, nil, nil, 'expires: a message must expire after now and after it is due'
  end
  return due, expires, at
end

local plain_heads = {}

-- The head of a message that is due now and has nothing but a priority and a body.
local function plain_head(priority)
  local head = plain_heads[priority]
  if not head then
    head = struct.pack('>BBBHI8', FORMAT, 0, priority, FIXED, now)
    plain_heads[priority] = head
  end
  return head
end

local function make_head(draft, flags, priority, due, expires, at)
  local numbers = ''
  if due > now then
    flags, numbers = flags + HAS_DUE, struct.pack('>I8', due)
  end
  if expires then
    flags, numbers = flags + HAS_EXPIRES, numbers .. struct.pack('>I8', expires)
  end
  numbers = numbers .. string.sub(draft, at)
  return struct.pack('>BBBHI8', FORMAT, flags, priority, FIXED + #numbers, now) .. numbers
end

local exists = open()
if not exists then
  if ARGV[3] == '' then
    return 'unknown'
  end
  begin(ARGV[3], ARGV[4])
end
reached()

local n = tonumber(ARGV[5])
if tonumber(call('HGET', META, 'put') or 0) % FORGET_EVERY < n then
  rare().forget(FORGET)
end
local ids, drafts, rests, extras = collect(n)
local known, ghosts = sort_known(ids)
local answers, keys, new, fresh = {}, {}, {}, 0

for number = 1, n do
  local id, extra = ids[number], extras[number]
  local key = extra and not extra.failure and extra.key
  local held = key and (keys[key] or rare().holder(key))
  if known[id] then
    answers[number] = id
  elseif held then
    answers[number] = held
  else
    local flags, priority, how = string.byte(drafts[number], 1, 3)
    local due, expires, at, why = now, nil, 4, nil
    if how > 0 then
      due, expires, at, why = times(drafts[number], how)
    end
    if why then
      dirty = exists and dirty or {}
      return refuse('invalid_input', why)
    end
    known[id] = true
    if key then
      keys[key] = id
    end
    answers[number] = ''
    new[#new + 1] = { number, id, flags, priority, due, expires, at }
    fresh = fresh + (extra and extra.failure and 0 or 1)
  end
end

if policy.capacity and fresh > 0 then
  local depth = waiting()
  if depth + fresh > policy.capacity then
    dirty = exists and dirty or {}
    return refuse('queue_full', string.format('%d of %d are waiting, there is no room for %d more',
      depth, policy.capacity, fresh))
  end
end

local values, ready, due_at, expiring, unique, dead = {}, {}, {}, {}, {}, {}
local largest, first = big, false
for _, entry in ipairs(new) do
  local number, id, flags, priority, due, expires, at = unpack(entry, 1, 7)
  local extra, draft, head = extras[number], drafts[number], nil
  if flags == 0 and #draft == 3 then
    head = plain_head(priority)
  else
    head = make_head(draft, flags, priority, due, expires, at)
  end
  local value = head .. rests[number]
  if extra and extra.put_at then
    local put_at = struct.pack('>I8', min(now, extra.put_at))
    value = string.sub(value, 1, FIXED - 8) .. put_at .. string.sub(value, FIXED + 1)
  end
  values[#values + 1] = id
  values[#values + 1] = value
  largest = max(largest, #value)
  if ghosts[id] then
    rare().clear_ghost(id)
  end
  if extra and extra.failure then
    dead[#dead + 1] = { id, value, extra }
  else
    if due > now then
      first = first or due
      first = min(first, due)
      due_at[#due_at + 1] = due * 256 + 255 - priority
      due_at[#due_at + 1] = id
    else
      ready[#ready + 1] = new_order(priority)
      ready[#ready + 1] = id
    end
    if expires then
      expiring[#expiring + 1] = expires
      expiring[#expiring + 1] = id
    end
    if extra and extra.key then
      unique[#unique + 1] = 'k' .. extra.key
      unique[#unique + 1] = id
      unique[#unique + 1] = 'i' .. id
      unique[#unique + 1] = extra.key
    end
  end
end

if first then
  rare().watch(first)
end
many('HSET', BODY, values)
many('ZADD', READY, ready)
many('ZADD', DUE, due_at)
many('ZADD', EXPIRES, expiring)
many('HSET', UNIQUE, unique)
for _, letter in ipairs(dead) do
  local id, value, extra = unpack(letter)
  local r = rare().new_record(value)
  r.attempt = extra.attempt or 0
  if extra.attempts ~= '' then
    r.flags = with(r.flags, TRIED)
    call('HSET', NOTES, id .. 'a', extra.attempts)
  end
  rare().bury(id, r, extra.failure)
end

rings = #ready / 2
if rings > 0 then
  set('seq', seq)
end
if largest > big then
  set('big', largest)
end
if #new > 0 then
  count('put', #new)
end
local depth = (policy.capacity or policy.warn_depth) and waiting() or -1
local wanted = finish_step()
if #new == n then
  return { wanted, depth }
end
return { wanted, depth, answers }
