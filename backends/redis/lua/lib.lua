-- What every script begins with. Redis runs a script as one step, and undoes nothing when one fails
-- in the middle. So all that can fail comes before the first write: a key of another type, and
-- memory that is short, which Redis refuses before the script (see the flags in client.go). The
-- first write is that to the stream, and fails alone if somebody changed the last revision by hand.
--
-- Keys, of one hash slot. None has a TTL: what ends is decided by the server's clock, in scripts.
--   rev      string  the last revision; tokens are revisions
--   ends     zset    session: its end in µs since 1970; 0 once it was found to be over
--   session  hash    session: "hf1 TTL-in-ms incarnation ID address", the texts escaped as in a query
--   lease    hash    name: "hf1 token nonce session granted-in-µs metadata"
--   own      zset    "session name", all of score 0, so in the order of their bytes
--   change   stream  what changed; an entry's ID is its revision
-- Numbers are doubles here, exact below 2^53; microseconds are until 2255.
local REV, ENDS, SESSION, LEASE, OWN, CHANGE = unpack(KEYS)
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local seen = tonumber(ARGV[1]) -- the highest revision that the caller knows of
local top = tonumber(call('GET', REV) or '0')
for key, size in pairs({[ENDS] = 'ZCARD', [SESSION] = 'HLEN', [LEASE] = 'HLEN', [OWN] = 'ZCARD', [CHANGE] = 'XLEN'}) do
  call(size, key)
end
if not top or top > 9000000000000000 then
  return redis.error_reply('WRONGTYPE ' .. REV .. ' is not a revision')
end

local function str(n)
  return string.format('%.0f', n)
end

-- next_rev is what the next change has: it grows for ever, with the clock where data was lost.
local function next_rev()
  return str(math.max(top + 1, seen + 1, now))
end

-- tell appends a change. Each names the one before it, by which readers notice that some are
-- missing.
local function tell(rev, kind, name, value, owner)
  call('XADD', CHANGE, 'MAXLEN', '~', '20000', rev .. '-0',
    'prev', str(top), 'kind', kind, 'name', name, 'value', value, 'owner', owner)
  call('SET', REV, rev)
  top = tonumber(rev)
end

if seen > top then -- the server has forgotten changes: tokens go on above what the caller has seen
  tell(next_rev(), 'raise', '', '', '')
end

local owners = {} -- that were read; no script changes one that it has read

local function owner_of(id)
  owners[id] = owners[id] or call('HGET', SESSION, id) or ''
  return owners[id]
end

-- ttl_of is in ms, as text; nil for a session that this version can't read.
local function ttl_of(id)
  return string.match(owner_of(id), '^hf1 (%d+) ')
end

-- ends_at is when a session ends; nil if it is over or was never open. What was found to be over
-- stays so, also if the clock is set back. One that ends later than a TTL from now was renewed
-- before that: it lasts a TTL from now at the most.
local function ends_at(id)
  local e = tonumber(call('ZSCORE', ENDS, id) or '0')
  if e > now then
    local latest = now + (ttl_of(id) or math.huge) * 1000
    if e > latest then
      e = latest
      call('ZADD', ENDS, str(e), id)
    end
    return e
  end
  if e > 0 then
    call('ZADD', ENDS, '0', id)
  end
  return nil
end

local function incarnation_of(id)
  return string.match(owner_of(id), '^hf1 %d+ (%S+) ')
end

local function is_open(id, incarnation)
  return ends_at(id) and incarnation_of(id) == incarnation
end

-- parse returns token, nonce and session of a record; nil for what is no record of this version.
local function parse(value)
  return string.match(value, '^hf1 (%d+) (%x+) (%d+) %d+ ')
end

local function remove(name, session)
  tell(next_rev(), 'gone', name, '', '')
  call('HDEL', LEASE, name)
  call('ZREM', OWN, session .. ' ' .. name)
end

local function put(name, nonce, session, meta, former)
  local rev = next_rev()
  local value = table.concat({'hf1', rev, nonce, session, str(now), meta}, ' ')
  tell(rev, 'put', name, value, owner_of(session))
  call('HSET', LEASE, name, value)
  if former and former ~= session then
    call('ZREM', OWN, former .. ' ' .. name)
  end
  call('ZADD', OWN, '0', session .. ' ' .. name)
  return value
end

-- row is what the caller gets of a record; nil if its session is over.
local function row(name, value)
  local token, nonce, session = parse(value)
  local owner, left = '', 0
  if token then
    local e = ends_at(session)
    if not e then
      return nil
    end
    owner, left = owner_of(session), math.floor((e - now) / 1000)
  end
  return {name, value, owner, left}, token, nonce, session
end

-- look is row of what stands under a name, and removes what is over. The value is read unless
-- given.
local function look(name, value)
  value = value or call('HGET', LEASE, name)
  if not value then
    return nil
  end
  local r, token, nonce, session = row(name, value)
  if not r then
    remove(name, select(3, parse(value)))
  end
  return r, token, nonce, session
end

-- finish removes records of a session that is over, then the session: up to limit things.
local function finish(id, limit)
  call('ZADD', ENDS, '0', id)
  local owned = call('ZRANGE', OWN, '[' .. id .. ' ', '(' .. id .. '!', 'BYLEX', 'LIMIT', 0, limit)
  for _, member in ipairs(owned) do
    local name = string.sub(member, #id + 2)
    local value = call('HGET', LEASE, name)
    if value and select(3, parse(value)) == id then
      remove(name, id)
    else
      call('ZREM', OWN, member)
    end
  end
  if #owned < limit then
    call('ZREM', ENDS, id)
    call('HDEL', SESSION, id)
    return #owned + 1, true
  end
  return #owned, false
end

-- sweep finishes sessions that are over, the earliest first: up to limit things.
local function sweep(limit)
  while limit > 0 do
    local id = call('ZRANGE', ENDS, '-inf', str(now), 'BYSCORE', 'LIMIT', 0, 1)[1]
    if not id then
      return
    end
    limit = limit - finish(id, limit)
  end
end

local SWEEP = 16 -- what each call that writes sweeps, beside its work
