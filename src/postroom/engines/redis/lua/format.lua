-- Messages and deliveries as they are kept: bytes that the client reads and writes too (packing.py).
--
-- A message, in BODY: version, flags, priority, length of the head, put_at, then those numbers that the
-- flags name (due, expires, ack_timeout, max_attempts, remember), then kind and correlation_id; that is
-- the head. Behind it content_type, headers and unique_key, if the flags say so, and the body.
local HAS_DUE, HAS_EXPIRES, HAS_ACK, HAS_MAX, HAS_REMEMBER, HAS_NAMES, HAS_TEXTS, HAS_KEY =
  1, 2, 4, 8, 16, 32, 64, 128

-- A delivery, in DELIVERY: who holds the message, its place, its counts, and a copy of the head. It
-- exists once a message was delivered, rescheduled or buried.
local HELD, STARTED, TIMED, BEATS, SUSPECT, TRIED, POINT, CAREFUL = 1, 2, 4, 8, 16, 32, 64, 128
-- Above these flags, in the same number: how often this delivery was given more time, up to 255.
local EXTENDED, MOST_EXTENDED = 256, 255
local HOLD, PLACE, REST = '>c8HI8I8I8I8', '>I8I8', '>HI4HI4Hc0B'

local function has(flags, bit)
  return flags % (bit * 2) >= bit
end

local function with(flags, bit)
  return has(flags, bit) and flags or flags + bit
end

local function without(flags, bit)
  return has(flags, bit) and flags - bit or flags
end

local function head_of(value)
  return string.sub(value, 1, struct.unpack('>H', value, 4))
end
