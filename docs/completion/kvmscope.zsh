#compdef kvmscope
# SPDX-License-Identifier: Apache-2.0
# Zsh completion for kvmscope: what the Bash completion prints, else files.

local -a offered
# Not if kvmscope was typed by its path and is not in PATH.
(( $+commands[kvmscope] )) && offered=(${(f)"$(bash $commands[kvmscope]:A:h:h/share/bash-completion/completions/kvmscope "${(@)words[1,CURRENT]}" 2> /dev/null)"})
if (( $#offered )); then
	compadd -- $offered
else
	_files
fi
