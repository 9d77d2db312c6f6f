-- ARGV: seen, session, TTL in ms, incarnation, what the session's hash gets
local id, ttl, incarnation, value = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local said
if ends_at(id) then
  said = 'other'
  if incarnation_of(id) == incarnation then
    said = ttl_of(id)
    call('ZADD', ENDS, str(now + said * 1000), id)
  end
elseif not call('ZSCORE', ENDS, id) or select(2, finish(id, 100)) then
  said = ttl
  call('HSET', SESSION, id, value)
  call('ZADD', ENDS, str(now + ttl * 1000), id)
else
  said = 'gone'
end
sweep(SWEEP)
return {str(top), said, {}}
