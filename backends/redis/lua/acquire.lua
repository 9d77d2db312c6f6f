-- ARGV: seen, session, incarnation, then of each claim name, nonce, the token that it supersedes,
-- metadata, and name, token and nonce of what must stand (an empty name: nothing)
local me, incarnation = ARGV[2], ARGV[3]
if not is_open(me, incarnation) then
  return {str(top), 'gone', {}}
end
local out, granted = {}, 0
for i = 4, #ARGV, 7 do
  local name, nonce, over, meta, parent = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local said, stands, replaced = 'held', nil, '0'
  if parent ~= '' then
    local _, token, with = look(parent)
    if token ~= ARGV[i + 5] or with ~= ARGV[i + 6] then
      said = 'parent'
    end
  end
  if said == 'held' then
    local r, token, _, session = look(name)
    stands = r
    local own = token and token == over and incarnation_of(session) == incarnation
    if not r or own then
      said, replaced = 'done', own and token or '0'
      stands = row(name, put(name, nonce, me, meta, session))
      granted = granted + 1
    end
  end
  out[#out + 1] = {said, stands or {}, replaced}
end
sweep(SWEEP)
return {str(top), str(granted), out}
