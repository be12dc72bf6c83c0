-- Cleaning up behind a purge, a little at a time. A message whose id is in the trash does not exist.

local PORTION = 100

local function clean_ids(ids)
  if call('EXISTS', UNIQUE) == 1 then
    local names = {}
    for number, id in ipairs(ids) do
      names[number] = 'i' .. id
    end
    for number, key in pairs(ask('HMGET', UNIQUE, names)) do
      if key then
        release_key(ids[number])
      end
    end
  end
  for number, record in pairs(ask('HMGET', DELIVERY, ids)) do
    if record then -- without one it has no notes either
      let_go(ids[number])
    end
  end
  many('HDEL', BODY, ids)
end

-- Remove one portion; whether there may be more.
local function clean()
  for _, trash in ipairs({ TRASH_READY, TRASH_SUSPECTS, TRASH_DUE }) do
    local popped = call('ZPOPMIN', trash, PORTION)
    if #popped > 0 then
      local ids = {}
      for at = 1, #popped, 2 do
        ids[#ids + 1] = popped[at]
      end
      clean_ids(ids)
      return true
    end
  end
  return false
end
