-- stats: how a queue stands, without a scan.
--
-- Returns ready, scheduled, processing, overdue, dead, oldest, next_priority (-1: none), paused,
--         { counter, count … }, until when (-1: it does not end by itself), how long until the rate lets
--         the next claim through; false for an unknown queue

if not open() then
  return false
end

local function put_at(id)
  return read_head(head_of(call('HGET', BODY, id))).put_at
end

-- The first ready message of each level, one look a level; with aging levels mix, and it is one.
local function heads(key)
  local oldest, from = nil, '-inf'
  while true do
    local found = call('ZRANGE', key, from, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
    if #found == 0 then
      return oldest
    end
    oldest = max(oldest or 0, now - put_at(found[1]))
    if policy.aging then
      return oldest
    end
    from = (floor(tonumber(found[2]) / policy.level) + 1) * policy.level
  end
end

local function next_priority()
  local first, best = nil, nil
  for _, key in ipairs({ READY, SUSPECTS }) do
    local found = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    local order = tonumber(found[2])
    if order and (not best or order < best or (order == best and found[1] < first)) then
      first, best = found[1], order
    end
  end
  return first and read_head(head_of(call('HGET', BODY, first))).priority or -1
end

local counters = { 'put', 'claimed', 'acked', 'retried', 'released', 'reclaimed', 'dead', 'expired', 'evicted',
  'cancelled', 'replayed', 'discarded', 'purged' }
return {
  claimable(), call('ZCARD', DUE), call('ZCARD', LEASE), call('ZCOUNT', LEASE, '-inf', now),
  call('ZCARD', DEAD), max(heads(READY) or 0, heads(SUSPECTS) or 0), next_priority(), paused and 1 or 0,
  call('HMGET', META, unpack(counters)), paused and pause_end or -1,
  policy.rate_count and refill_in() or 0,
}
