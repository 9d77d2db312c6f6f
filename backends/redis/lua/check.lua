-- Whether leases can be kept here: what the user may not do, and what the server evicts. It does
-- not begin with lib.lua, and writes nothing.
local REV, ENDS, SESSION, LEASE, OWN, CHANGE = unpack(KEYS)
local lacks, policy = {}, ''
for _, command in ipairs({
  {'EVAL', '', '0'}, {'TIME'}, {'GET', REV}, {'SET', REV, '1'}, {'ZCARD', ENDS}, {'ZSCORE', ENDS, '1'}, {'ZADD', ENDS, '1', '1'},
  {'ZREM', OWN, '1'}, {'ZRANGE', OWN, '[1', '(2', 'BYLEX'}, {'HLEN', SESSION}, {'HGET', SESSION, '1'},
  {'HSET', LEASE, '1', '1'}, {'HDEL', LEASE, '1'}, {'HSCAN', LEASE, '0'}, {'XLEN', CHANGE},
  {'XADD', CHANGE, '*', '1', '1'}, {'XREAD', 'STREAMS', CHANGE, '0'}, {'WAIT', '1', '1'}, {'INFO', 'memory'},
}) do
  if not redis.acl_check_cmd(unpack(command)) then
    lacks[#lacks + 1] = string.lower(command[1])
  end
end
if redis.acl_check_cmd('INFO', 'memory') then
  policy = string.match(redis.call('INFO', 'memory'), 'maxmemory_policy:(%S+)') or ''
end
return {'0', policy, lacks}
