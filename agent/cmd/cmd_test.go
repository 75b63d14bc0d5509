package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"sluice/agent/status"
)

func commands() []*cli.Command {
	return []*cli.Command{Agent(), Status(), Get(), Explain(), Diff(), Top(), Check(), Cleanup(), Version(), Completion()}
}

// sluice runs a command as a shell would.
func sluice(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	code = run(t.Context(), commands(), append([]string{"sluice"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

type provider struct {
	healthy bool
	diff    status.Diff
	err     error
}

func (p provider) Status(context.Context) (status.Status, error) {
	return status.Status{Healthy: p.healthy, Node: "pi", Started: time.Now()}, p.err
}

func (p provider) Services(context.Context) ([]status.Service, error) {
	return []status.Service{{Namespace: "default", Name: "kubernetes"}, {Namespace: "shop", Name: "web"}}, p.err
}

func (p provider) Endpoints(context.Context) ([]status.Endpoint, error) {
	return []status.Endpoint{{Namespace: "shop", Service: "web", Address: netip.MustParseAddrPort("10.42.0.1:80")}}, p.err
}

func (p provider) Counts(context.Context) (status.Counts, error) {
	return status.Counts{At: time.Now(), Node: "pi", Mode: "nftables", Items: []status.ServiceCounts{
		{Namespace: "default", Name: "kubernetes"}, {Namespace: "shop", Name: "web", Connections: 3},
	}}, p.err
}

func (p provider) Diff(context.Context) (status.Diff, error) { return p.diff, p.err }

func (p provider) Explain(_ context.Context, q status.Question) ([]status.Path, error) {
	if q.Target == "nonsense" {
		return nil, &status.QuestionError{Text: "that is nonsense"}
	}
	return []status.Path{{To: []string{q.Target}, From: q.From, Verdict: "untouched", Reason: q.Protocol}}, p.err
}

// serve answers for p and returns the socket.
func serve(t *testing.T, p status.Provider) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s.sock")
	l, err := status.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- status.Serve(ctx, l, p, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

func TestExitCodes(t *testing.T) {
	healthy := serve(t, provider{healthy: true})
	ill := serve(t, provider{})
	broken := serve(t, provider{err: errors.New("out of order")})
	none := filepath.Join(t.TempDir(), "none.sock")
	tests := []struct {
		args   string
		code   int
		stderr string // a part of it; empty: it says nothing
	}{
		{"", 0, ""},
		{"--help", 0, ""},
		{"--version", 0, ""},
		{"help get", 0, ""},
		{"agent --help", 0, ""},
		{"get endpoints web --help", 0, ""},
		{"get svc -h", 0, ""},
		{"version", 0, ""},
		{"completion bash", 0, ""},
		{"status --socket " + healthy, 0, ""},
		{"get services --socket " + healthy, 0, ""},

		{"status --socket " + ill, 1, ""},
		{"status --socket " + broken, 1, "out of order"},
		{"get endpoints --socket " + broken, 1, "out of order"},
		{"get svc nosuch --socket " + healthy, 1, `service "nosuch" in any namespace`},
		{"get ep nosuch --socket " + healthy, 1, `service "nosuch" in any namespace`},
		{"get ep web -n default --socket " + healthy, 1, `service "web" in namespace default`},
		{"get ep kubernetes --socket " + healthy, 0, "default/kubernetes has no endpoints\n"},
		{"get ep kubernetes -o json --socket " + healthy, 0, ""},
		{"get svc web -n default --socket " + healthy, 1, `service "web" in namespace default`},
		{"cleanup --socket " + healthy, 1, "another sluice agent"},
		{"explain 10.43.0.1:80 --from host --proto udp --socket " + healthy, 0, ""},
		{"explain nonsense --socket " + healthy, 1, "that is nonsense"},
		{"explain web --from mars --socket " + healthy, 2, `"mars" is no sender`},
		{"explain web --proto icmp --socket " + healthy, 2, `protocol "icmp" is none of tcp`},
		{"explain web --socket " + none, 3, "no sluice agent is running"},
		{"explain --socket " + healthy, 2, "say what to explain"},
		{"explain a b --socket " + healthy, 2, `"b"`},

		{"top --socket " + healthy + " --count 1 --sort name -n shop", 0, ""},
		{"top --socket " + broken, 1, "out of order"},
		{"top --socket " + none, 3, "no sluice agent is running"},
		{"top web", 2, `"web"`},
		{"top --sort size", 2, "rate, total, name, endpoints, bytes"},
		{"top --interval 1", 2, `--interval "1" is not a time of 1s or more`},
		{"top --interval 10ms", 2, "1s or more"},
		{"top --count 0", 2, `--count "0"`},

		{"agnet", 2, `unknown command "agnet"; did you mean agent?`},
		{"nothing-like-it", 2, "unknown command \"nothing-like-it\"\n"},
		{"--no-such-flag", 2, "unknown flag --no-such-flag\n"},
		{"help agnet", 2, `unknown command "agnet"; did you mean agent?`},
		{"agent --no-such-flag", 2, `See "sluice agent --help"`},
		{"agent -cluster-cdir x", 2, "unknown flag --cluster-cdir; did you mean --cluster-cidr?"},
		{"status --sokcet=x", 2, "unknown flag --sokcet; did you mean --socket?"},
		{"get svc -x", 2, "unknown flag -x\n"},
		{"agent --manifests", 2, "--manifests needs an argument"},
		{"agent --manifests --masquerade-all", 2, "--manifests needs an argument; one that begins with dashes is given as --manifests=VALUE"},
		{"agent --manifests -- x", 2, "--manifests needs an argument"},
		{"get svc -n -o json", 2, "-n needs an argument"},
		{"agent --manifests /m extra", 2, `"extra"`},
		{"agent --manifests /m --sync-period soon", 2, `--sync-period: "soon"`},
		{"agent --manifests /m --proxy-mode ipvs", 2, "auto, nftables, iptables"},
		{"agent --hostname-override a --node-name b --manifests /m", 2, "two forms of the same flag"},
		{"status extra", 2, `"extra"`},
		{"status -o wide", 2, "json, yaml"},
		{"get", 2, "services or endpoints"},
		{"get pods", 2, `"pods"`},
		{"get svc a b", 2, `"b"`},
		{"get svc -o table", 2, "wide, json, yaml"},
		{"get svc -A -n shop", 2, "exclude each other"},
		{"cleanup all", 2, `"all"`},
		{"check all", 2, `"all"`},
		{"check -o wide", 2, "json, yaml"},
		{"version -o wide", 2, "json, yaml"},
		{"completion", 2, "bash, zsh or fish"},
		{"completion tcsh", 2, "bash, zsh or fish"},

		{"status --socket " + none, 3, none},
		{"get services --socket " + none, 3, "sluice agent"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			code, stdout, stderr := sluice(t, strings.Fields(test.args)...)
			if code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			if !strings.Contains(stderr, test.stderr) || test.stderr == "" && stderr != "" {
				t.Errorf("standard error is %q, want %q in it", stderr, test.stderr)
			}
			if code == exitUsage && stdout != "" {
				t.Errorf("with an error of usage, standard output is %q", stdout)
			}
		})
	}
}

func TestGet(t *testing.T) {
	socket := serve(t, provider{})
	tests := []struct {
		args string
		want []string // fields of the first two columns
	}{
		{"services", []string{"NAMESPACE NAME", "default kubernetes", "shop web"}},
		{"-o wide svc", []string{"NAMESPACE NAME", "default kubernetes", "shop web"}},
		{"svc web -o wide", []string{"NAMESPACE NAME", "shop web"}},
		{"svc -n shop", []string{"NAMESPACE NAME", "shop web"}},
		{"svc -A", []string{"NAMESPACE NAME", "default kubernetes", "shop web"}},
		{"endpoints", []string{"NAMESPACE SERVICE", "shop web"}},
		{"ep web --namespace=shop", []string{"NAMESPACE SERVICE", "shop web"}},
		{"svc -- web", []string{"NAMESPACE NAME", "shop web"}},
		{"ep -n default", nil},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			code, stdout, stderr := sluice(t, append([]string{"get", "--socket", socket}, strings.Fields(test.args)...)...)
			var got []string
			for line := range strings.Lines(stdout) {
				got = append(got, strings.Join(strings.Fields(line)[:2], " "))
			}
			if diff := cmp.Diff(test.want, got); diff != "" || code != 0 {
				t.Errorf("exit code %d, %q (-want +got):\n%s", code, stderr, diff)
			}
		})
	}
}

func TestDocuments(t *testing.T) {
	socket := serve(t, provider{healthy: true})
	_, stdout, _ := sluice(t, "get", "svc", "web", "-o", "json", "--socket", socket)
	var list status.List[status.Service]
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || len(list.Items) != 1 || list.Items[0].Name != "web" {
		t.Errorf("get -o json: %v, got\n%s", err, stdout)
	}
	_, stdout, _ = sluice(t, "get", "ep", "-o", "yaml", "-n", "none", "--socket", socket)
	if stdout != "items: []\n" {
		t.Errorf("get -o yaml of nothing: got\n%s", stdout)
	}
	_, stdout, _ = sluice(t, "status", "-o", "yaml", "--socket", socket)
	if !strings.Contains(stdout, "healthy: true\n") || !strings.Contains(stdout, "node: pi\n") {
		t.Errorf("status -o yaml: got\n%s", stdout)
	}
	_, stdout, _ = sluice(t, "version", "-o", "json")
	var version map[string]string
	if err := json.Unmarshal([]byte(stdout), &version); err != nil || version["goVersion"] == "" || version["platform"] == "" {
		t.Errorf("version -o json: %v, got\n%s", err, stdout)
	}
}

func TestCompletion(t *testing.T) {
	socket := serve(t, provider{})
	for words, want := range map[string]string{ // _ is an empty word that is being typed
		"_":                                 "agent check cleanup completion diff explain get help status top version",
		"c":                                 "check cleanup completion",
		"--v":                               "--version",
		"help ge":                           "get",
		"help get _":                        "",
		"nosuch _":                          "",
		"get _":                             "services endpoints",
		"get s":                             "services",
		"get svc --socket " + socket + " _": "kubernetes web",
		"get svc -n shop --socket " + socket + " _":    "web",
		"get svc --socket " + socket + " -- k":         "kubernetes",
		"get --socket " + socket + " -n shop -- svc _": "web",
		"get svc web _":                "",
		"get -o _":                     "wide json yaml",
		"get svc --output=j":           "--output=json",
		"get svc --output = y":         "yaml", // as bash splits it
		"agent --sync":                 "--sync-period",
		"agent --proxy-mode _":         "auto nftables iptables",
		"agent --nodeport-addresses p": "primary",
		"agent --detect-local-mode B":  "BridgeInterface",
		"agent --manifests _":          "",
		"agent --masquerade-all _":     "",
		"status -":                     "--config --help --output --socket -o",
		"completion _":                 "bash zsh fish",
		"top --sort _":                 "rate total name endpoints bytes",
		"completion bash _":            "",
	} {
		args := append(strings.Fields(words), completionFlag)
		if n := len(args) - 2; args[n] == "_" {
			args[n] = ""
		}
		code, stdout, stderr := sluice(t, args...)
		got, wanted := strings.Fields(stdout), strings.Fields(want)
		slices.Sort(got)
		slices.Sort(wanted)
		if !slices.Equal(got, wanted) || code != 0 {
			t.Errorf("%s: exit code %d, %q, got %q, want %q", words, code, stderr, got, want)
		}
	}
}

// The script for bash, in bash.
func TestCompletionInBash(t *testing.T) {
	for line, want := range map[string]string{
		"get": "get", "get ": "services endpoints", "get -- svc": "ARGS get -- svc", "get --output=": "ARGS get --output ", "status --so": "ARGS status --so",
	} {
		words := strings.Split(strings.ReplaceAll(line, "=", " = "), " ")
		if strings.HasSuffix(line, "=") {
			words = words[:len(words)-1]
		}
		script := completions["bash"] + `
sluice() { if [[ $* == "get  --generate"* ]]; then echo services endpoints; else words=("${@:1:$#-1}"); echo "${words[*]}" | sed "s/^/ARGS /" >&3; echo get; fi; }
COMP_WORDS=(sluice ` + "'" + strings.Join(words, "' '") + "'" + `); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_sluice 3>&1
echo "${COMPREPLY[*]}"
`
		out, err := exec.Command("bash", "-c", script).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, got %q, want %q", line, err, out, want)
		}
	}
}

// Only the commands' own errors choose the exit code: that of a program that was run is none of sluice's.
func TestExitCodeOfPrograms(t *testing.T) {
	command := &cli.Command{Name: "run", Action: func(*cli.Context) error {
		return fmt.Errorf("try it: %w", exec.Command("sh", "-c", "exit 2").Run())
	}}
	var out, errs strings.Builder
	if code := run(t.Context(), []*cli.Command{command}, []string{"sluice", "run"}, &out, &errs); code != exitFailure {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}

// What install.sh has the options written by.
func TestWriteConfig(t *testing.T) {
	dir := t.TempDir()
	file, config := filepath.Join(dir, "90-install.yaml"), filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("log-level: warn\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range os.Environ() { // the lab marks its processes by a variable
		if name, _, _ = strings.Cut(name, "="); strings.HasPrefix(name, "SLUICE_") {
			t.Setenv(name, "") // puts it back at the end
			os.Unsetenv(name)
		}
	}
	t.Setenv("SLUICE_HOSTNAME_OVERRIDE", "pi")
	code, out, errs := sluice(t, "agent", "--config", config, "--v=4", "--pod-bridge-interface", "cni0", "--write-config-to", file)
	if code != 0 || out != "" || !strings.Contains(errs, "--pod-bridge-interface has no effect") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	written, err := os.ReadFile(file)
	if diff := cmp.Diff("hostname-override: pi\npod-bridge-interface: cni0\nv: 4\n", string(written)); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"--data-dir=d", "--no-such-flag", "--sync-period=x"} {
		if code, _, errs := sluice(t, "agent", bad, "--write-config-to", file); code != 2 || !strings.Contains(errs, strings.TrimRight(bad, "=dx")) {
			t.Errorf("%s: exit code %d, %q", bad, code, errs)
		}
	}
	t.Setenv("SLUICE_CLUSTER_CDIR", "10.42.0.0/16")
	if code, _, errs := sluice(t, "agent", "--config", config, "--v=1", "--write-config-to", file); code != 2 ||
		!strings.Contains(errs, "SLUICE_CLUSTER_CDIR sets no option; did you mean SLUICE_CLUSTER_CIDR?") {
		t.Errorf("a variable that is misspelt: exit code %d, %q", code, errs)
	}
	if again, err := os.ReadFile(file); err != nil || string(again) != string(written) {
		t.Errorf("after errors: %v, %s", err, again)
	}
}

func TestSocketOfConfiguration(t *testing.T) {
	t.Setenv("SLUICE_SOCKET", serve(t, provider{healthy: true}))
	if code, _, stderr := sluice(t, "status"); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestHelpFitsTheTerminal(t *testing.T) {
	for _, name := range []string{"", "agent", "status", "get", "check", "cleanup", "version", "completion"} {
		code, stdout, stderr := sluice(t, append(strings.Fields(name), "--help")...)
		if code != 0 || stderr != "" {
			t.Errorf("%q: exit code %d, %q", name, code, stderr)
		}
		for _, section := range []string{"NAME:", "USAGE:", "Examples:", "OPTIONS:"} {
			if !strings.Contains(stdout, section) {
				t.Errorf("%q: no %s", name, section)
			}
		}
		for line := range strings.Lines(stdout) {
			if line = strings.TrimSuffix(line, "\n"); len(line) > 80 || strings.HasSuffix(line, " ") {
				t.Errorf("%q: %d bytes: %q", name, len(line), line)
			}
		}
	}
}

// TestErrorsArePrintable: what an argument holds does not speak to the terminal.
func TestErrorsArePrintable(t *testing.T) {
	for _, args := range [][]string{{"\x1b[31mstatus"}, {"explain", "a\x1b]0;x\x07/b/c"}, {"status", "--socket", "/no\x1b[2Jne"}} {
		if code, _, errs := sluice(t, args...); code == exitOK || errs == "" || strings.ContainsAny(errs, "\x1b\x07") {
			t.Errorf("%q: code %d, %q", args, code, errs)
		}
	}
}
