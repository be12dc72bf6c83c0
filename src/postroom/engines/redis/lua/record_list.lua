-- record_list: ARGV [2] the key behind which to begin, or '', [3] limit
-- Returns { key, record … } in order of the keys

local answer, limit, from = {}, tonumber(ARGV[3]), ARGV[2] == '' and '-' or '(' .. ARGV[2]
while #answer < 2 * limit do
  local keys = redis.call('ZRANGE', NAMES, from, '+', 'BYLEX', 'LIMIT', 0, limit)
  for _, key in ipairs(keys) do
    local found = live(key)
    if found and #answer < 2 * limit then
      answer[#answer + 1] = key
      answer[#answer + 1] = found
    end
  end
  if #keys < limit then
    break
  end
  from = '(' .. keys[#keys]
end
return answer
