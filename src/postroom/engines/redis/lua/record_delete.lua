-- record_delete: ARGV [2] the key, [3] the version expected or ''
-- Returns 1 if there was such a record, else 0

local found, version = live(ARGV[2])
if not found or not fits(version, ARGV[3]) then
  return 0
end
remove(ARGV[2])
return 1
