-- record_get: ARGV [2] the key
-- Returns the record as it is kept, or false

return live(ARGV[2]) or false
