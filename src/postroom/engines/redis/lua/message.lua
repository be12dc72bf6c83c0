-- Reading and writing of what format.lua describes.

local RECORD = '>c8HI8I8I8I8I8I8HI4HI4Hc0Bc0'
local NOBODY = string.rep('\0', 8)

-- What a head says; the numbers that are not there are nil.
local function read_head(head)
  local _, flags, priority, size, put_at = struct.unpack('>BBBHI8', head)
  local found = { flags = flags, priority = priority, put_at = put_at, due = put_at, kind = '', task = '' }
  local at = FIXED + 1
  if has(flags, HAS_DUE) then
    found.due, at = struct.unpack('>I8', head, at)
  end
  if has(flags, HAS_EXPIRES) then
    found.expires, at = struct.unpack('>I8', head, at)
  end
  if has(flags, HAS_ACK) then
    found.ack_timeout, at = struct.unpack('>I8', head, at)
  end
  if has(flags, HAS_MAX) then
    found.max_attempts, at = struct.unpack('>I8', head, at)
  end
  if has(flags, HAS_REMEMBER) then
    found.remember, at = struct.unpack('>I8', head, at)
  end
  if has(flags, HAS_NAMES) then
    found.kind, found.task = struct.unpack('>Bc0Bc0', head, at)
  end
  return found
end

-- Where a message stands, as a table; `head` is the head as it is kept, `about` what it says.
local function read_record(record)
  local r, at = {}, nil
  r.token, r.flags, r.claimed_at, r.started_at, r.ack_deadline, r.lease, r.order, r.due, r.attempt,
    r.deliveries, r.ran_out, r.strays, r.consumer, r.group, at = struct.unpack(RECORD, record)
  r.head = string.sub(record, at)
  r.about = read_head(r.head)
  return r
end

-- Where a message stands that was never delivered.
local function new_record(value, order)
  local head = head_of(value)
  local about = read_head(head)
  return {
    token = NOBODY, flags = 0, claimed_at = 0, started_at = 0, ack_deadline = 0, lease = 0,
    order = order or 0, due = about.due, attempt = 0, deliveries = 0, ran_out = 0, strays = 0,
    consumer = '', group = '', head = head, about = about,
  }
end

local function write_record(r)
  return struct.pack(RECORD, r.token, r.flags, r.claimed_at, r.started_at, r.ack_deadline, r.lease, r.order,
    r.due, r.attempt, r.deliveries, r.ran_out, r.strays, #r.consumer, r.consumer, #r.group, r.group) .. r.head
end

-- How often this delivery was given more time.
local function extended(r)
  return floor(r.flags / EXTENDED)
end

-- Nobody holds it any more: no old receipt fits.
local function lay_down(r)
  r.token, r.started_at, r.ack_deadline, r.consumer = NOBODY, 0, 0, ''
  r.flags = without(without(without(r.flags % EXTENDED, HELD), STARTED), TIMED)
end
