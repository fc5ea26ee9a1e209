-- Writes the setting, the root if there was no setting, and the trash if it does not exist.
-- KEYS: setting, root, trash. ARGV: the setting, the root's attr, the trash's attr or ''.
local fresh = redis.call('EXISTS', KEYS[1]) == 0
if ARGV[3] ~= '' then redis.call('SETNX', KEYS[3], ARGV[3]) end
if fresh then redis.call('SET', KEYS[2], ARGV[2]) end
redis.call('SET', KEYS[1], ARGV[1])
return fresh and 1 or 0
