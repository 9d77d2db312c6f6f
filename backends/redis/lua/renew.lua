-- ARGV: seen, then session and incarnation of each
local out, granted = {}, 0
for i = 2, #ARGV, 2 do
  local ttl = 0
  if is_open(ARGV[i], ARGV[i + 1]) then
    ttl = tonumber(ttl_of(ARGV[i]))
    call('ZADD', ENDS, str(now + ttl * 1000), ARGV[i])
    granted = granted + 1
  end
  out[#out + 1] = ttl
end
sweep(SWEEP)
return {str(top), str(granted), out}
