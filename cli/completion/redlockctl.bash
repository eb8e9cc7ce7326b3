# SPDX-License-Identifier: MIT
# Completion of redlockctl for bash. Commands and options are those of `redlockctl --help`, so of the program that is installed. Names of
# locks come from the server, if it answers within a second; others choose them, so they are never expanded (compgen -W would run a $(...)
# in them), and quoted before they go into the command line.

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

# What run, drill and watch run is a command like any other.
_redlockctl_offer_command() {
	if declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	elif (($1 == COMP_CWORD)); then
		mapfile -t COMPREPLY < <(compgen -c -- "$word")
	else
		_redlockctl_offer_files
	fi
}

# Adds the options of the command, which `redlockctl help` lists.
_redlockctl_offer_options() {
	local line of=("$command")
	[[ $command == key ]] && of+=("$second")
	[[ $command == @(run|drill) ]] && _redlockctl_offer --
	_redlockctl_offer --help
	while IFS= read -r line; do
		[[ $line =~ ^'  '(--[a-z-]+) ]] && _redlockctl_offer "${BASH_REMATCH[1]}"
	done < <(if [[ -n $command ]]; then command redlockctl help "${of[@]}" 2>/dev/null; else printf '%s\n' "$help"; fi)
}

# Adds the commands: lines such as "  run NAME..." of the help.
_redlockctl_offer_commands() {
	local line
	while IFS= read -r line; do
		[[ $line =~ ^'  '([a-z]+)' ' ]] && _redlockctl_offer "${BASH_REMATCH[1]}"
	done <<<"$help"
}

# argument: what the help calls the value of an option, FILE or TIME. False: it has none.
_redlockctl_find_argument() {
	[[ $help =~ $'\n  '"$1"=([A-Z]+) || $help =~ $'\n  '--[a-z-]+=([A-Z]+)", $1"$'\n' ]] && argument=${BASH_REMATCH[1]}
}

# The value of an option. False: it has none.
_redlockctl_offer_value() {
	local argument
	_redlockctl_find_argument "$1" || return 1
	case $argument in
	FILE) _redlockctl_offer_files ;;
	RIGHT) _redlockctl_offer acquire inspect list admin ;;
	ADDRESS) _redlockctl_offer http://127.0.0.1:8080 unix:/ ;;
	TIME) _redlockctl_offer 250ms 5s 30s 1m 5m 1h ;;
	esac
}

# command, second: the first words that are no option and no option's value. True: the cursor is in the command of run, drill or watch, which begins at `at`.
_redlockctl_find_command() {
	local argument
	for ((at = 1; at < ${#words[@]} - 1; at++)); do
		if [[ ${words[at]} == -- ]]; then
			((at++))
			[[ $command == @(run|drill|watch) ]]
			return
		elif [[ ${words[at]} == -* ]]; then
			_redlockctl_find_argument "${words[at]}" && ((at++))
		elif [[ -z $command ]]; then
			command=${words[at]}
		elif [[ -z $second ]]; then
			second=${words[at]}
		elif [[ $command == @(run|drill|watch) ]]; then
			return 0
		fi
	done
	((at == ${#words[@]} - 1)) && [[ $command == @(run|drill|watch) && -n $second && ${words[at]} != -* ]]
}

_redlockctl() {
	local words first at command="" second="" word before cut="" help i
	COMPREPLY=()
	help=$(command redlockctl --help 2>/dev/null)
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
		_redlockctl_offer_commands
		_redlockctl_offer help version
	elif [[ $command == key && -z $second ]]; then
		_redlockctl_offer new hash
	elif [[ $command == help && -z $second ]]; then
		_redlockctl_offer_commands
	elif [[ $command == @(run|drill|acquire|extend|release|status|explain|watch) ]]; then
		_redlockctl_offer_names
	fi
	[[ $word == *[:=]* ]] && cut=${word%"${word##*[:=]}"} # bash replaces only what follows the last of these
	for i in "${!COMPREPLY[@]}"; do
		COMPREPLY[i]=${COMPREPLY[i]#"$cut"}
	done
}

complete -F _redlockctl redlockctl
