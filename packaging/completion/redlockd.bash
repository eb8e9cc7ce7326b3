# SPDX-License-Identifier: MIT
# Completion of redlockd for bash. What it offers comes from `redlockd --help`, so it is that of the program that is installed.

# What follows an option, as --help writes it: FILE, TIME, …
_redlockd_argument() {
	redlockd --help 2>/dev/null | sed -n "s/^  $1\[\{0,1\}=\([A-Z]*\).*/\1/p"
}

# The words of "Allowed: a, b or c."
_redlockd_choices() {
	redlockd --help 2>/dev/null | awk -v option="  $1" '
		index($0, option "=") == 1 || index($0, option "[") == 1 { found = 1 }
		found && sub(/^ *Allowed: /, "") { gsub(/,| or |\.$/, " "); print; exit }'
}

_redlockd() {
	local line=${COMP_LINE:0:COMP_POINT} word before=""
	COMPREPLY=()
	word=${line##*[[:blank:]]}
	[[ $line == *[[:blank:]]* ]] && before=${line%"$word"} && before=${before%"${before##*[![:blank:]]}"} && before=${before##*[[:blank:]]}
	if [[ $word == --*=* ]]; then
		before=${word%%=*} word=${word#*=}
	elif [[ $word == -* || $before != --* || $before == *=* ]]; then
		compopt -o nospace 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -W "$(redlockd --help 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p')" -- "$word")
		return
	fi
	case $(_redlockd_argument "$before") in
	FILE)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		;;
	TRUTH | WHEN | FORMAT | LEVEL | WHICH) mapfile -t COMPREPLY < <(compgen -W "$(_redlockd_choices "$before")" -- "$word") ;;
	esac
}

complete -F _redlockd redlockd
