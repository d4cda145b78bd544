# SPDX-License-Identifier: Apache-2.0
# Bash completion for kvmscope. Commands and options come from the program's
# own --help, so that they can not differ from it.

_kvmscope_commands() {
	kvmscope --help 2> /dev/null | awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }'
}

_kvmscope_options() {
	kvmscope "$1" --help 2> /dev/null | grep -oE -- '(^|[ ,])--?[a-zA-Z][a-z-]*' | tr -d ' ,'
}

_kvmscope_values() {
	case $1 in
	--backend) echo auto bpf perf ptrace qmp ;;
	--domain) virsh -q list --name 2> /dev/null ;;
	--connect) echo qemu:///system qemu:///session ;;
	--pmu) echo auto kernel emulated off ;;
	--protocol) echo auto bzimage pvh elf64 multiboot ;;
	--agent) [ "${COMP_WORDS[1]}" = attach ] && return 1; echo initrd guest ;;
	--clock) echo cpu wall ;;
	--sampler) echo auto kick bpf ;;
	--color) echo auto always never ;;
	--perspective) echo guest host ;;
	--bp-priority) echo guest host ;;
	--watch) echo jiffies_64:8:w schedule:x ;;
	--format) echo folded html pprof script ;;
	--by) echo cgroup container ;;
	--event | -e) [ "${COMP_WORDS[1]}" = run ] && echo cpu-clock ;;
	--sort) _kvmscope_keys symbol image vcpu app comm pid tid cgroup container ;;
	--pid | -p) [ "${COMP_WORDS[1]}" = attach ] && _kvmscope_vms || _kvmscope_runs 1 ;;
	--stack-time) echo 64us 200us 1ms 0us ;;
	--flight) echo 10s 30s 5min 64M 256M ;;
	--after) echo 500ms 1s 5s ;;
	*) return 1 ;;
	esac
}

# Each of the keys behind those that the word has already.
_kvmscope_keys() {
	local first=
	[[ $word != *,* ]] || first=${word%,*},
	printf "$first%s\n" "$@"
}

_kvmscope_runs() {
	kvmscope ctl list 2> /dev/null | awk -v column="$1" '/^$/ { exit } NR > 1 { print $column }'
}

# Those that kvmscoped profiles, behind the runs.
_kvmscope_domains() {
	kvmscope ctl list 2> /dev/null | awk 'on && $1 + 0 { print $2 } /^Domains of/ { on = 1 }'
}

_kvmscope_vms() {
	kvmscope attach 2> /dev/null | awk '{ print $1 }'
}

# The numbers of those that were not removed.
_kvmscope_watches() {
	kvmscope ctl bp list 2> /dev/null | awk '/^$/ { exit } NR > 1 && $2 != "removed" { print $1 }'
}

_kvmscope() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} values
	COMPREPLY=()
	# Bash makes a word of its own of '='.
	if [ "$word" = = ]; then
		word=
	elif [ "$before" = = ]; then
		before=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	if [ "$COMP_CWORD" = 1 ]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_kvmscope_commands)" -- "$word")
	elif values=$(_kvmscope_values "$before"); then
		mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
	elif [[ $word == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_kvmscope_options "${COMP_WORDS[1]}")" -- "$word")
	elif [ "${COMP_WORDS[1]}" = ctl ] && [ "$before" = bp ]; then
		mapfile -t COMPREPLY < <(compgen -W "list add remove" -- "$word")
	elif [ "${COMP_WORDS[1]}" = ctl ] && [ "$before" = remove ]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_kvmscope_watches)" -- "$word")
	elif [ "${COMP_WORDS[1]}" = ctl ] && { [ "$before" = dump ] || [ "$before" = status ]; }; then
		mapfile -t COMPREPLY < <(compgen -W "$(_kvmscope_domains)" -- "$word")
	elif [ "${COMP_WORDS[1]}" = libvirt ]; then
		mapfile -t COMPREPLY < <(compgen -W "install uninstall status" -- "$word")
	elif [ "${COMP_WORDS[1]}" = ctl ]; then
		mapfile -t COMPREPLY < <(compgen -W "list status dump pause resume freq bp" -- "$word")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
	fi
}

complete -o filenames -F _kvmscope kvmscope
