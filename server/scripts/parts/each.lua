	-- Sets `answers` to the time, and what `one` answers to each resource. An error of one does not affect the others.
	local answers = {now_us}
	for i = 1, #KEYS - 1 do
		local done, answer = pcall(one, i)
		answers[i + 1] = done and answer or type(answer) == 'table' and answer or {err = answer}
	end
