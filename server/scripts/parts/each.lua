	-- Sets `answers` to the time, and what `one` answers to each resource. An error of one does not affect the others. Of
	-- one resource alone its answer is that of the script.
	if #KEYS == 2 then
		return one(1)
	end
	local answers = {now_us}
	for i = 1, #KEYS - 1 do
		local done, answer = pcall(one, i)
		answers[i + 1] = done and answer or type(answer) == 'table' and answer or {err = answer}
	end
