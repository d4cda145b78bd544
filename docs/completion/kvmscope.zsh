#compdef kvmscope
# SPDX-License-Identifier: Apache-2.0
# Zsh completion for kvmscope: what that for Bash prints, which is installed with it, else files.

local -a offered
# Typed by its path it need not be in PATH: without a name there the file would be looked for in this directory.
(( $+commands[kvmscope] )) && offered=(${(f)"$(bash $commands[kvmscope]:A:h:h/share/bash-completion/completions/kvmscope "${(@)words[1,CURRENT]}" 2> /dev/null)"})
if (( $#offered )); then
	compadd -- $offered
else
	_files
fi
