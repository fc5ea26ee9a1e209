-- Stores a rule under a new id, which it returns. KEYS: the id counter, the rules. ARGV: the rule.
local id = redis.call('INCR', KEYS[1])
redis.call('HSET', KEYS[2], id, ARGV[1])
return id
