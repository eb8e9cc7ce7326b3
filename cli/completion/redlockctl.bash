# Completion of redlockctl for bash. Names of locks come from the server, if it answers within a second.

_redlockctl_names() {
	redlockctl list --json --timeout 1s --limit 200 --prefix "$1" 2>/dev/null | grep -o '"resource":"[^"\\]*"' | cut -d '"' -f 4
}

_redlockctl() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} commands="run acquire extend release status list masters help version"
	local command="" i options="--server --timeout --json --help"
	for ((i = 1; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} == -- && $command == run ]]; then
			COMP_WORDS=("${COMP_WORDS[@]:i + 1}")
			COMP_CWORD=$((COMP_CWORD - i - 1))
			if ((COMP_CWORD == 0)); then
				mapfile -t COMPREPLY < <(compgen -c -- "$word")
			elif declare -F _command_offset >/dev/null; then
				COMP_LINE="${COMP_WORDS[*]}" COMP_POINT=${#COMP_LINE}
				_command_offset 0
			else
				mapfile -t COMPREPLY < <(compgen -f -- "$word")
			fi
			return
		fi
		[[ -z $command && " $commands " == *" ${COMP_WORDS[i]} "* ]] && command=${COMP_WORDS[i]}
	done
	case $command in
	run) options+=" --ttl --wait --no-wait --owner --conflict-exit-code --kill-after --wait-all --verbose --" ;;
	acquire) options+=" --ttl --wait --no-wait --owner --conflict-exit-code --token-file" ;;
	extend) options+=" --ttl --token-file --token" ;;
	release) options+=" --token-file --token" ;;
	list) options+=" --prefix --limit" ;;
	esac
	case $before in
	--token-file) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
	--server | -s) mapfile -t COMPREPLY < <(compgen -W "http://127.0.0.1:8080 unix:/" -- "$word") ;;
	--ttl | -t | --wait | -w | --kill-after | -k | --timeout) mapfile -t COMPREPLY < <(compgen -W "250ms 5s 30s 1m 5m 1h" -- "$word") ;;
	--owner | --conflict-exit-code | -E | --token | --prefix | --limit) ;;
	*)
		if [[ $word == -* ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
		elif [[ -z $command ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
		elif [[ $command == @(run|acquire|extend|release|status) ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$(_redlockctl_names "$word")" -- "$word")
		fi
		;;
	esac
}

complete -F _redlockctl redlockctl
