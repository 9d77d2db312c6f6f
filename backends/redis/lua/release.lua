-- ARGV: seen, then name, token and nonce of each
local out = {}
for i = 2, #ARGV, 3 do
  local _, token, nonce, session = look(ARGV[i])
  local mine = token and token == ARGV[i + 1] and nonce == ARGV[i + 2]
  if mine then
    remove(ARGV[i], session)
  end
  out[#out + 1] = mine and 1 or 0
end
sweep(SWEEP)
return {str(top), '', out}
