-- record_list: ARGV [2] the key behind which to begin, or '', [3] limit
-- Returns the key behind which to go on, or '' when it has enough or came to the end, and { key, record … } in
--         order of the keys: 4 MB but at least one, and of so many keys, whose time may all be over

local LOOKS, BYTES = 1000, 4194304
local answer, size, limit = {}, 0, tonumber(ARGV[3])
local from = ARGV[2] == '' and '-' or '(' .. ARGV[2]
local keys = redis.call('ZRANGE', NAMES, from, '+', 'BYLEX', 'LIMIT', 0, LOOKS)
for _, key in ipairs(keys) do
  local found = live(key)
  if found then
    answer[#answer + 1] = key
    answer[#answer + 1] = found
    size = size + #found
    if #answer == 2 * limit then
      return { '', answer }
    elseif size > BYTES then
      return { key, answer }
    end
  end
end
return { #keys == LOOKS and keys[LOOKS] or '', answer }
