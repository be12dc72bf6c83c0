-- stored: what is kept of one message, by the key in which it is.
--
-- ARGV [3] its id
-- Returns a key and a value by turns, the value of a sorted set being the score; false for an unknown queue

if not open() then
  return false
end
local id, answer = ARGV[3], {}
if not visible(id) then
  return answer
end
local function add(key, value)
  if value then
    answer[#answer + 1] = key
    answer[#answer + 1] = value
  end
end
for _, key in ipairs({ READY, SUSPECTS, DUE, LEASE, EXPIRES, DEAD, DONE, KEPT, KNOWN }) do
  add(key, call('ZSCORE', key, id))
end
add(BODY, call('HGET', BODY, id))
add(DELIVERY, call('HGET', DELIVERY, id))
for _, letter in ipairs({ 'a', 'c', 'f', 'r' }) do
  add(NOTES .. ' ' .. letter, call('HGET', NOTES, id .. letter))
end
return answer
