package cmd

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"
)

// completionFlag is the hidden flag behind the words that are there already, the last of which is being typed
// and may be empty: the scripts ask sluice itself for what can stand in its place. It is the cli library's.
const completionFlag = "--generate-bash-completion"

// bash splits words at "=" and ":".
var completions = map[string]string{
	"bash": `# bash completion for sluice
_sluice() {
	local cur=${COMP_WORDS[COMP_CWORD]}
	if [[ $cur == = ]]; then
		cur=
	fi
	mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[@]:0:COMP_CWORD}" "$cur" --generate-bash-completion 2>/dev/null)" -- "$cur")
}
complete -o default -F _sluice sluice
`,
	"zsh": `#compdef sluice
# zsh completion for sluice
_sluice() {
	local -a candidates
	candidates=("${(@f)$("${(@)words[1,CURRENT-1]}" "${words[CURRENT]}" --generate-bash-completion 2>/dev/null)}")
	if [[ -n ${candidates[1]} ]]; then
		compadd -a candidates
	else
		_files
	fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
	_sluice "$@"
else
	compdef _sluice sluice
fi
`,
	"fish": `# fish completion for sluice
function __sluice_complete
	set -l words (commandline -opc)
	set -l current (commandline -ct)
	set -l candidates ($words "$current" --generate-bash-completion 2>/dev/null)
	if test (count $candidates) -gt 0
		printf '%s\n' $candidates
	else
		__fish_complete_path "$current"
	end
end
complete -c sluice -f -a '(__sluice_complete)'
`,
}

// Completion prints a script that completes sluice's commands and flags in a shell.
func Completion() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a completion script for a shell",
		UsageText: "sluice completion bash|zsh|fish",
		Description: "Examples:\n" +
			"   source <(sluice completion bash)\n" +
			"   sluice completion bash > /etc/bash_completion.d/sluice\n" +
			"   sluice completion zsh > \"${fpath[1]}/_sluice\"\n" +
			"   sluice completion fish > ~/.config/fish/completions/sluice.fish",
		BashComplete: complete(func(c *cli.Context) []string {
			if c.NArg() > 0 {
				return nil
			}
			return []string{"bash", "zsh", "fish"}
		}),
		Action: func(c *cli.Context) error {
			script, ok := completions[c.Args().First()]
			if !ok || c.NArg() != 1 {
				return usageError(fmt.Errorf("name one shell: bash, zsh or fish"))
			}
			_, err := io.WriteString(c.App.Writer, script)
			return err
		},
	}
}
