# SPDX-License-Identifier: Apache-2.0
# Fish completion for kvmscope: what the Bash completion prints, else files.

function __kvmscope_offered
    set -l program (command -v kvmscope); or return # typed by its path, and not in PATH
    set -l prefix (dirname (dirname (realpath $program)))
    bash $prefix/share/bash-completion/completions/kvmscope (commandline -opc) (commandline -ct) 2>/dev/null
end

complete -c kvmscope -a '(__kvmscope_offered)'
