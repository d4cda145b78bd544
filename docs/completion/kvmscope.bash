# SPDX-License-Identifier: Apache-2.0
# Bash completion for kvmscope. Commands and options come from the program's
# own --help. Completion for Zsh and Fish runs this file and offers what it
# prints: see _kvmscope_print.

_kvmscope_commands() {
	kvmscope --help 2> /dev/null | awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }'
}

# Only those of the option list, not those that texts mention.
_kvmscope_options() {
	kvmscope "$1" --help 2> /dev/null | sed -nE 's/^(  |      )(-[^ ]+( --?[a-z][^ ]*)?).*/\2/p' | grep -oE -- '--?[a-zA-Z][a-z-]*'
}

_kvmscope_words() {
	printf '%s\n' "$@"
}

_kvmscope_values() {
	case $1 in
	--backend) _kvmscope_words auto bpf perf ptrace qmp ;;
	--domain) _kvmscope_running_domains ;;
	--connect) _kvmscope_words qemu:///system qemu:///session ;;
	--pmu) _kvmscope_words auto kernel emulated off ;;
	--protocol) _kvmscope_words auto bzimage pvh elf64 multiboot ;;
	--agent) [ "${COMP_WORDS[1]}" = attach ] && return 1; _kvmscope_words initrd guest ;;
	--clock) _kvmscope_words cpu wall ;;
	--sampler) _kvmscope_words auto kick bpf ;;
	--color) _kvmscope_words auto always never ;;
	--perspective) _kvmscope_words guest host ;;
	--bp-priority) _kvmscope_words guest host ;;
	--watch) _kvmscope_words jiffies_64:8:w schedule:x ;;
	--format | -f) [ "${COMP_WORDS[1]}" = diff ] && _kvmscope_words text folded html ||
		_kvmscope_words firefox folded html pprof script speedscope sysroot ;;
	--order) _kvmscope_words delta baseline ;;
	--by) _kvmscope_words cgroup container ;;
	--event | -e) case ${COMP_WORDS[1]} in
		run) _kvmscope_words cpu-clock cpu-clock,kvm:exit cpu-clock,kvm:exit,kvm:off-cpu ;;
		attach) _kvmscope_words cpu-clock cycles cpu-clock,kvm:exit cpu-clock,kvm:exit,kvm:off-cpu ;;
		*) return 1 ;;
		esac ;;
	--time) [[ ${COMP_WORDS[1]} == @(attach|stat) ]] && return 1; _kvmscope_words 10%/1 0%-50% ;;
	--sort | -s) [ "${COMP_WORDS[1]}" = top ] && _kvmscope_words cpu vm process function ||
		_kvmscope_keys symbol image vcpu app comm pid tid cgroup container ;;
	--pid | -p) [[ ${COMP_WORDS[1]} == @(attach|stat|top) ]] && _kvmscope_vms || _kvmscope_runs 1 ;;
	--stack-time) _kvmscope_words 64us 200us 1ms 0us ;;
	--flight) _kvmscope_words 10s 30s 5min 64M 256M ;;
	--after) _kvmscope_words 500ms 1s 5s ;;
	*) return 1 ;;
	esac
}

# Of the libvirt that --connect names. Bash splits its URI at ':'.
_kvmscope_running_domains() {
	local line="${COMP_WORDS[*]}"
	line=${line// : /:}
	[[ ${line// = /=} =~ --connect[=\ ]([^ ]+) ]]
	virsh -q ${BASH_REMATCH[1]:+-c "${BASH_REMATCH[1]}"} list --name 2> /dev/null
}

# Appends each of the keys to those that the word has already.
_kvmscope_keys() {
	local first=
	[[ $word != *,* ]] || first=${word%,*},
	_kvmscope_words "${@/#/$first}"
}

_kvmscope_runs() {
	kvmscope ctl list 2> /dev/null | awk -v column="$1" '/^$/ { exit } NR > 1 { print $column }'
}

# The domains of kvmscoped follow the runs.
_kvmscope_domains() {
	kvmscope ctl list 2> /dev/null | awk 'on && $1 + 0 { print $2 } /^Domains of/ { on = 1 }'
}

_kvmscope_vms() {
	kvmscope attach 2> /dev/null | awk '{ print $1 }'
}

# The numbers of watches that were not removed.
_kvmscope_watches() {
	kvmscope ctl bp list 2> /dev/null | awk '/^$/ { exit } NR > 1 && $2 != "removed" { print $1 }'
}

# Offers the lines that begin with the word. Domain names are chosen by others:
# compgen -W would run $(...) in them, and so would the command line without
# quotes. Zsh and Fish add quotes themselves.
_kvmscope_offer() {
	local line
	while IFS= read -r line; do
		[[ $_kvmscope_plain || $line != *[^[:alnum:]_.,:=/@+%-]* ]] || printf -v line %q "$line"
		[[ -z $line || $line != "$word"* ]] || COMPREPLY+=("$line")
	done <<< "$1"
}

_kvmscope() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} values
	COMPREPLY=()
	# Bash splits words at '='.
	if [ "$word" = = ]; then
		word=
	elif [ "$before" = = ]; then
		before=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	if [ "$COMP_CWORD" = 1 ] || [ "${COMP_WORDS[1]}" = help ]; then
		_kvmscope_offer "$(_kvmscope_commands)"
	elif values=$(_kvmscope_values "$before"); then
		_kvmscope_offer "$values"
	elif [[ $word == -* ]]; then
		_kvmscope_offer "$(_kvmscope_options "${COMP_WORDS[1]}")"
	elif [ "${COMP_WORDS[1]}" = ctl ] && [ "$before" = bp ]; then
		_kvmscope_offer "$(_kvmscope_words list add remove)"
	elif [ "${COMP_WORDS[1]}" = ctl ] && [ "$before" = remove ]; then
		_kvmscope_offer "$(_kvmscope_watches)"
	elif [ "${COMP_WORDS[1]}" = ctl ] && [[ $before == @(dump|names|status) ]]; then
		_kvmscope_offer "$(_kvmscope_domains)"
	elif [ "${COMP_WORDS[1]}" = libvirt ]; then
		_kvmscope_offer "$(_kvmscope_words install uninstall status)"
	elif [ "${COMP_WORDS[1]}" = ctl ]; then
		_kvmscope_offer "$(_kvmscope_words list status dump names pause resume freq bp)"
	elif [ -z "$_kvmscope_plain" ]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
	fi
}

# Prints the completions of the last word, one per line; nothing: a file.
_kvmscope_print() {
	local _kvmscope_plain=yes last=${*: -1} option=
	local -a COMP_WORDS=("${@:1:$#-1}") COMPREPLY
	if [[ $last == --*=* ]]; then
		option=${last%%=*}=
		COMP_WORDS+=("${last%%=*}" =)
		last=${last#*=}
	fi
	COMP_WORDS+=("$last")
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	_kvmscope
	[ ${#COMPREPLY[@]} = 0 ] || printf '%s\n' "${COMPREPLY[@]/#/$option}"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
	_kvmscope_print "$@"
else
	complete -o filenames -F _kvmscope kvmscope
fi
