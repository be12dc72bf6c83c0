-- move: an operator's moves; each checks the state it starts from.
--
-- ARGV [3…] ten for each: id, action, a number and whether it is a span ('s') or an instant ('i'), the number
--      of the replay, the id of the new message (replay: 16 bytes), what to note as its replay (text),
--      content_type or '', '1' and the body or '' if the payload stays, '1' and the headers or '' if they stay
-- Returns rings, and for each three: 'o' or 'n', the letter of the state found or '', and for 'o' the replay
--         or '', for 'n' why not; false for an unknown queue

if not open() then
  return false
end
reached()

local WIDTH, DAY = 10, 86400000
local STARTS = {
  cancel = 'rsd', reschedule = 'rsd', run_now = 'd', replay = 'x', mark_replayed = 'x', discard = 'x',
}
local COUNTERS = { cancel = 'cancelled', discard = 'discarded' }

local function replays_of(id)
  local found = call('HGET', NOTES, id .. 'r')
  return found and cmsgpack.unpack(found) or {}
end

local function take_out(id, r, place_of)
  if place_of == 'x' then
    return take_dead(id, r)
  end
  for _, key in ipairs({ READY, SUSPECTS, DUE, EXPIRES }) do
    call('ZREM', key, id)
  end
end

-- The rest of an argument that says whether it means something; nil if it does not.
local function edited(argument)
  return string.byte(argument) == 49 and string.sub(argument, 2) or nil
end

-- The texts behind the head and the body, with what is edited of them.
local function splice(flags, value, content_type, new_body, new_headers)
  local size = struct.unpack('>H', value, 4)
  local kept, headers, key, body = '', '', '', string.sub(value, size + 1)
  if has(flags, HAS_TEXTS) then
    local type_size, headers_size, key_size, at = struct.unpack('>BI4B', value, size + 1)
    local headers_at, key_at = at + type_size, at + type_size + headers_size
    kept, headers = string.sub(value, at, headers_at - 1), string.sub(value, headers_at, key_at - 1)
    key, body = string.sub(value, key_at, key_at + key_size - 1), string.sub(value, key_at + key_size)
  end
  kept, headers = content_type ~= '' and content_type or kept, new_headers or headers
  if kept .. headers .. key == '' then
    return without(flags, HAS_TEXTS), new_body or body
  end
  local texts = struct.pack('>BI4B', #kept, #headers, #key) .. kept .. headers .. key
  return with(flags, HAS_TEXTS), texts .. (new_body or body)
end

-- The dead letter as a new message: put and due now, never expiring, remembered for a day at least.
local function again(id, content_type, new_body, new_headers)
  local value = call('HGET', BODY, id)
  local about = read_head(head_of(value))
  local flags, rest = splice(about.flags, value, content_type, new_body, new_headers)
  flags = with(without(without(flags, HAS_DUE), HAS_EXPIRES), HAS_REMEMBER)
  local numbers = ''
  if about.ack_timeout then
    numbers = struct.pack('>I8', about.ack_timeout)
  end
  if about.max_attempts then
    numbers = numbers .. struct.pack('>I8', about.max_attempts)
  end
  numbers = numbers .. struct.pack('>I8', max(about.remember or 0, DAY))
  if has(flags, HAS_NAMES) then
    numbers = numbers .. struct.pack('>Bc0Bc0', #about.kind, about.kind, #about.task, about.task)
  end
  local head = struct.pack('>BBBHI8', FORMAT, flags, about.priority, FIXED + #numbers, now) .. numbers
  return head .. rest, about.priority
end

local function is_known(id)
  local til, kept = call('ZSCORE', KNOWN, id), call('ZSCORE', KEPT, id)
  return find_place(id) or (til and tonumber(til) > now) or (kept and tonumber(kept) > now)
end

local function put_again(id, new_id, key, ...)
  if is_known(new_id) then
    return
  end
  if call('HEXISTS', BODY, new_id) == 1 then
    clear_ghost(new_id)
  end
  local value, priority = again(id, ...)
  call('HSET', BODY, new_id, value)
  call('ZADD', READY, new_order(priority), new_id)
  set('seq', seq)
  if #value > big then
    big = #value
    set('big', big)
  end
  if key then
    call('HSET', UNIQUE, 'k' .. key, new_id, 'i' .. new_id, key)
  end
  rings = rings + 1
  count('put', 1)
end

local function key_of(id)
  local value = call('HGET', BODY, id)
  local _, flags, _, size = struct.unpack('>BBBH', value)
  if not has(flags, HAS_KEY) then
    return nil
  end
  local type_size, headers_size, key_size, at = struct.unpack('>BI4B', value, size + 1)
  at = at + type_size + headers_size
  return string.sub(value, at, at + key_size - 1)
end

local function hex(id)
  return (string.gsub(id, '.', function(letter)
    return string.format('%02x', string.byte(letter))
  end))
end

local function replay(at)
  local id, action, number, new_id, name = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 4]), ARGV[at + 5], ARGV[at + 6]
  local seen = replays_of(id)
  if number <= #seen then
    return 'o', seen[number]
  elseif number ~= #seen + 1 then
    return 'n', string.format('it was replayed %d times, not %d', #seen, number - 1)
  end
  if action == 'replay' then
    local key = key_of(id)
    local held = key and holder(key)
    if held then
      return 'n', 'message ' .. hex(held) .. ' holds its unique_key'
    end
    put_again(id, new_id, key, ARGV[at + 7], edited(ARGV[at + 8]), edited(ARGV[at + 9]))
  end
  seen[#seen + 1] = name
  call('HSET', NOTES, id .. 'r', cmsgpack.pack(seen))
  count('replayed', 1)
  note('replay', id)
  return 'o', name
end

local function act(at, place_of)
  local id, action = ARGV[at], ARGV[at + 1]
  if action == 'replay' or action == 'mark_replayed' then
    return replay(at)
  end
  local r = record_of(id)
  take_out(id, r, place_of)
  if COUNTERS[action] then
    vanish(id, r.about)
    count(COUNTERS[action], 1)
  else
    local number = tonumber(ARGV[at + 2])
    local due = action == 'run_now' and now or ARGV[at + 3] == 's' and now + number or number
    wait_until(id, r, min(due, LAST_DUE))
    set('seq', seq)
  end
  note(action, id)
  return 'o', ''
end

-- How many of the moves add to what waits, for the capacity.
local function will_put()
  local number = 0
  for at = 3, #ARGV, WIDTH do
    if ARGV[at + 1] == 'replay' and call('ZSCORE', DEAD, ARGV[at])
      and tonumber(ARGV[at + 4]) == #replays_of(ARGV[at]) + 1 then
      number = number + 1
    end
  end
  return number
end

if policy.capacity then
  local more, depth = will_put(), waiting()
  if more > 0 and depth + more > policy.capacity then
    return refuse('queue_full', string.format('%d of %d are waiting, there is no room for %d more',
      depth, policy.capacity, more))
  end
end

local answers = {}
for at = 3, #ARGV, WIDTH do
  local place_of = visible(ARGV[at])
  local did, text = 'n', ''
  if place_of and string.find(STARTS[ARGV[at + 1]], place_of, 1, true) then
    did, text = act(at, place_of)
  end
  answers[#answers + 1] = did
  answers[#answers + 1] = place_of or ''
  answers[#answers + 1] = text
end
return { finish_step(), answers }
