-- ARGV: seen, then of each move name, token, nonce, the target's session, incarnation and nonce,
-- 1 to keep the metadata or 0, and the metadata
local out, granted = {}, 0
for i = 2, #ARGV, 8 do
  local name, to = ARGV[i], ARGV[i + 3]
  local r, token, nonce, session = look(name)
  local said = 'held'
  if token and token == ARGV[i + 1] and nonce == ARGV[i + 2] then
    said = 'target'
    if is_open(to, ARGV[i + 4]) then
      said = 'done'
      local meta = ARGV[i + 7]
      if ARGV[i + 6] == '1' then
        meta = string.match(r[2], '^hf1 %d+ %x+ %d+ %d+ (.*)$')
      end
      r = row(name, put(name, ARGV[i + 5], to, meta, session))
      granted = granted + 1
    end
  end
  out[#out + 1] = {said, r or {}, '0'}
end
sweep(SWEEP)
return {str(top), str(granted), out}
