# Completion of redlockctl for bash. Names of locks come from the server, if it answers within a second; others choose them, so they are
# never expanded (compgen -W would run a $(...) in them), and quoted before they go into the command line.

# words, first: COMP_WORDS up to the cursor, with what bash broke at : and = put together again; where in COMP_WORDS each begins.
_redlockctl_words() {
	local line=$COMP_LINE i piece blank
	words=() first=()
	for ((i = 0; i <= COMP_CWORD; i++)); do
		piece=${COMP_WORDS[i]} blank=${line%%[![:blank:]]*}
		if ((i == 0)) || [[ -n $blank ]]; then
			words+=("$piece") first+=("$i")
		else
			words[-1]+=$piece
		fi
		line=${line#"$blank"}
		line=${line#"$piece"}
	done
}

# Adds those of the words that begin like $word.
_redlockctl_offer() {
	local offered
	for offered; do
		[[ $offered == "$word"* ]] && COMPREPLY+=("$offered")
	done
}

_redlockctl_offer_names() {
	local name plain=${word//\\/}
	while IFS= read -r name; do
		[[ $name == "$plain"* && $name != -* ]] && COMPREPLY+=("$(printf %q "$name")")
	done < <(redlockctl list --json --timeout 1s --limit 200 --prefix "$plain" 2>/dev/null | grep -o '"resource":"[^"\\]*"' | cut -d '"' -f 4)
}

_redlockctl_offer_files() {
	compopt -o filenames 2>/dev/null
	mapfile -t COMPREPLY < <(compgen -f -- "$word")
}

# What run and watch run is a command like any other.
_redlockctl_offer_command() {
	if declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	elif (($1 == COMP_CWORD)); then
		mapfile -t COMPREPLY < <(compgen -c -- "$word")
	else
		_redlockctl_offer_files
	fi
}

_redlockctl_offer_options() {
	[[ $command == key ]] || _redlockctl_offer --server --timeout --cacert --cert --key --key-file
	_redlockctl_offer --json --help
	case $command in
	run) _redlockctl_offer --ttl --wait --no-wait --shared --slots --owner --metadata --conflict-exit-code --kill-after --wait-all --verbose --quiet -- ;;
	acquire) _redlockctl_offer --ttl --wait --no-wait --shared --slots --owner --metadata --conflict-exit-code --token-file --quiet ;;
	extend) _redlockctl_offer --ttl --token-file --token ;;
	release) _redlockctl_offer --token-file --token --force --fence ;;
	key) _redlockctl_offer_key_options ;;
	status) _redlockctl_offer --exit-code ;;
	list) _redlockctl_offer --prefix --owner --limit --below --below-full ;;
	health) _redlockctl_offer --ready --restart-safe ;;
	"") _redlockctl_offer --version ;;
	esac
}

_redlockctl_offer_key_options() {
	case $second in
	new) _redlockctl_offer --name --prefix --right --out ;;
	hash) _redlockctl_offer --key-file ;;
	esac
}

# The value of an option. False: it has none.
_redlockctl_offer_value() {
	case $1 in
	--token-file | --cacert | --cert | --key | --key-file | --out) _redlockctl_offer_files ;;
	--right) _redlockctl_offer acquire inspect list admin ;;
	--server | -s) _redlockctl_offer http://127.0.0.1:8080 unix:/ ;;
	--ttl | -t | --wait | -w | --kill-after | -k | --timeout) _redlockctl_offer 250ms 5s 30s 1m 5m 1h ;;
	--owner | --metadata | --conflict-exit-code | -E | --token | --fence | --prefix | --limit | --below | --name) ;;
	*) return 1 ;;
	esac
}

# command, second: the first words that are no option and no option's value. True: the cursor is in the command of run or watch, which begins at `at`.
_redlockctl_find_command() {
	for ((at = 1; at < ${#words[@]} - 1; at++)); do
		case ${words[at]} in
		--) ((at++)); [[ $command == @(run|watch) ]]; return ;;
		--server | -s | --ttl | -t | --wait | -w | --kill-after | -k | --timeout | --token-file) ((at++)) ;;
		--cacert | --cert | --key | --key-file | --out | --right | --name) ((at++)) ;;
		--owner | --metadata | --conflict-exit-code | -E | --token | --fence | --prefix | --limit | --below) ((at++)) ;;
		-*) ;;
		*)
			if [[ -z $command ]]; then
				command=${words[at]}
			elif [[ -z $second ]]; then
				second=${words[at]}
			elif [[ $command == @(run|watch) ]]; then
				return 0
			fi
			;;
		esac
	done
	((at == ${#words[@]} - 1)) && [[ $command == @(run|watch) && -n $second && ${words[at]} != -* ]]
}

_redlockctl() {
	local words first at command="" second="" word before cut="" i
	COMPREPLY=()
	_redlockctl_words
	word=${words[-1]} before=${words[-2]}
	if _redlockctl_find_command; then
		_redlockctl_offer_command "${first[at]}"
		return
	fi
	[[ $word == --*=* ]] && before=${word%%=*} word=${word#*=}
	if _redlockctl_offer_value "$before"; then
		:
	elif [[ $word == -* ]]; then
		_redlockctl_offer_options
	elif [[ -z $command ]]; then
		_redlockctl_offer run acquire extend release status watch list masters health key help version
	elif [[ $command == key && -z $second ]]; then
		_redlockctl_offer new hash
	elif [[ $command == help && -z $second ]]; then
		_redlockctl_offer run acquire extend release status watch list masters health key
	elif [[ $command == @(run|acquire|extend|release|status|watch) ]]; then
		_redlockctl_offer_names
	fi
	[[ $word == *[:=]* ]] && cut=${word%"${word##*[:=]}"} # bash replaces only what follows the last of these
	for i in "${!COMPREPLY[@]}"; do
		COMPREPLY[i]=${COMPREPLY[i]#"$cut"}
	done
}

complete -F _redlockctl redlockctl
