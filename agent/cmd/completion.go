package cmd

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
)

// The scripts ask sluice itself for what can come next, by the hidden flag
// --generate-bash-completion behind the words that are there already.
var completions = map[string]string{
	"bash": `# bash completion for sluice
_sluice() {
	local cur=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]:0:COMP_CWORD}")
	if [[ $cur == -* ]]; then
		words+=("$cur")
	fi
	mapfile -t COMPREPLY < <(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null)" -- "$cur")
}
complete -o default -F _sluice sluice
`,
	"zsh": `#compdef sluice
# zsh completion for sluice
_sluice() {
	local -a before candidates
	before=("${(@)words[1,CURRENT-1]}")
	[[ ${words[CURRENT]} == -* ]] && before+=("${words[CURRENT]}")
	candidates=("${(@f)$("${before[@]}" --generate-bash-completion 2>/dev/null)}")
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
	if string match -q -- '-*' $current
		set words $words $current
	end
	$words --generate-bash-completion 2>/dev/null
end
complete -c sluice -a '(__sluice_complete)'
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

// complete offers a command's flags after a dash, else the arguments that can come next.
func complete(arguments func(*cli.Context) []string) cli.BashCompleteFunc {
	return func(c *cli.Context) {
		// The word that is being typed, before the hidden flag at the end; the library looks there, too.
		if n := len(os.Args) - 2; n > 0 && strings.HasPrefix(os.Args[n], "-") {
			cli.DefaultCompleteWithFlags(c.Command)(c)
			return
		}
		for _, a := range arguments(c) {
			fmt.Fprintln(c.App.Writer, a)
		}
	}
}
